//! The body of a watch on a bad day.
//!
//! In: the bytes of a watch. Out: the same lines with some left out, said twice, or the end come early.
//! Must stay true: only whole lines are changed; what passes is byte for byte what came.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::{Fault, Random};

/// A body whose lines suffer a fault.
pub struct FaultyLines<B> {
    inner: B,
    fault: Fault,
    random: Random,
    buffer: BytesMut,
    n_lines: u32,
    ended: bool,
}

const GONE: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}
"#;

impl<B> FaultyLines<B> {
    pub(super) fn new(inner: B, fault: Fault, random: Random) -> Self {
        FaultyLines { inner, fault, random, buffer: BytesMut::new(), n_lines: 0, ended: false }
    }

    /// Takes in bytes and gives out the whole lines that come of them.
    fn take(&mut self, data: &[u8]) -> Bytes {
        self.buffer.extend_from_slice(data);
        let mut out = BytesMut::new();
        while let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
            let line = self.buffer.split_to(end + 1);
            if self.ended {
                continue;
            }
            self.n_lines += 1;
            match self.fault {
                Fault::DropEvents(chance) if self.random.chance(chance) => {}
                Fault::StallWatch { after } if self.n_lines > after => {}
                Fault::RepeatEvents(chance) if self.random.chance(chance) => {
                    out.extend_from_slice(&line);
                    out.extend_from_slice(&line);
                }
                Fault::CutWatch { after } if self.n_lines > after => self.ended = true,
                Fault::ExpireWatch { after } if self.n_lines > after => {
                    out.extend_from_slice(GONE);
                    self.ended = true;
                }
                _ => out.extend_from_slice(&line),
            }
        }
        out.freeze()
    }
}

impl<B> Body for FaultyLines<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            match Pin::new(&mut self.inner).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.ended = true;
                    let rest = self.buffer.split().freeze();
                    if rest.is_empty() {
                        return Poll::Ready(None);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(rest))));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let out = self.take(&data);
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(out))));
                    }
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[track_caller]
    fn check(fault: Fault, input: &str, expected: &str) {
        let body = FaultyLines::new(Full::new(Bytes::from(input.to_owned())), fault, Random(1));
        let out = futures::executor::block_on(body.collect()).unwrap().to_bytes();
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn lines() {
        check(Fault::DropEvents(1000), "a\nb\n", "");
        check(Fault::DropEvents(0), "a\nb\n", "a\nb\n");
        check(Fault::RepeatEvents(1000), "a\nb\n", "a\na\nb\nb\n");
        check(Fault::CutWatch { after: 1 }, "a\nb\nc\n", "a\n");
        check(Fault::ExpireWatch { after: 0 }, "a\n", std::str::from_utf8(GONE).unwrap());
        check(Fault::StallWatch { after: 1 }, "a\nb\nc\n", "a\n");
        check(Fault::DropEvents(0), "a\nhalf", "a\nhalf");
    }
}
