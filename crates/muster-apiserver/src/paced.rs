//! Streams on a socket, at a pace. In: the body of an answer. Out: the same, where a stream waits a moment after each small piece before it asks
//! for the next.
//!
//! A watch gathers what happens while nobody asks, so that a burst of events costs each watcher one record and one call of the
//! system for many of them. What comes after a pause is sent at once. Must stay true: bodies of known length are left alone, and whoever has much to
//! read is not held up.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The pause after a small piece. The clock of the runtime goes by milliseconds.
const PAUSE: Duration = Duration::from_millis(1);
/// A piece of this size was worth its call.
const LARGE: usize = 16 << 10;

/// A body, at a pace if it is a stream.
pub struct Paced<B> {
    body: Pin<Box<B>>,
    pause: Option<Pin<Box<Sleep>>>,
    pauses: bool,
    is_stream: bool,
}

impl<B: Body> Paced<B> {
    /// The same body.
    pub fn new(body: B) -> Paced<B> {
        let is_stream = body.size_hint().exact().is_none();
        Paced { body: Box::pin(body), pause: None, pauses: false, is_stream }
    }
}

impl<B: Body<Data = Bytes>> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.pauses
            && let Some(pause) = &mut this.pause
        {
            ready!(pause.as_mut().poll(cx));
            this.pauses = false;
        }
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        let is_small = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| data.len() < LARGE);
        if this.is_stream && frame.as_ref().is_some_and(|frame| frame.as_ref().is_ok_and(is_small)) {
            let until = Instant::now() + PAUSE;
            match &mut this.pause {
                Some(pause) => pause.as_mut().reset(until),
                None => this.pause = Some(Box::pin(tokio::time::sleep_until(until))),
            }
            this.pauses = true;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;

    #[tokio::test(start_paused = true)]
    async fn a_stream_pauses_after_small_pieces_and_a_whole_body_does_not() {
        let begun = Instant::now();
        let pieces = futures::stream::iter([1, 2, LARGE, 3])
            .map(|size| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; size]))));
        let mut stream = Paced::new(StreamBody::new(pieces));
        let mut times = Vec::new();
        while let Some(frame) = stream.frame().await {
            times.push((frame.unwrap().into_data().unwrap().len(), begun.elapsed().as_millis()));
        }
        assert_eq!(times, [(1, 0), (2, 1), (LARGE, 2), (3, 2)]);

        let begun = Instant::now();
        let whole = Paced::new(Full::new(Bytes::from("whole"))).collect().await.unwrap();
        assert_eq!((whole.to_bytes(), begun.elapsed()), (Bytes::from("whole"), Duration::ZERO));
    }
}
