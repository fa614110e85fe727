//! Answers wait for the disk. In: a request to a server whose store is kept in a folder. Out: its answer, once everything that it tells
//! of is on disk; or a refusal, if the disk would not take it.
//!
//! Must stay true: what a client was told, whether by a read, a write or a refusal, is still so after a crash. A server in memory
//! answers at once.

use crate::reply::Reply;
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::store::disk::{Settled, UNWRITABLE};
use bytes::Bytes;

/// How often a request that wrote nothing is answered anew because what it saw was undone. The disk is asked once a second while it
/// refuses, so twice is already rare.
const TRIES: usize = 8;

impl ApiServer {
    /// Answers a request when that can no longer be taken back.
    pub(crate) async fn answer_settled(
        &self,
        head: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Reply, ApiError> {
        let store = self.store();
        let Some(durability) = store.durability() else { return self.answer_request(head, body).await };
        let mut fault = durability.fault();
        if fault.is_none() || !may_write(head) {
            for _ in 0..TRIES {
                match durability.settle(store, self.answer_request(head, body)).await {
                    (outcome, Settled::Kept) => return outcome,
                    (_, Settled::Again) => fault = durability.fault(),
                    (_, Settled::Lost(why)) => {
                        fault = Some(why);
                        break;
                    }
                }
            }
        }
        let why = fault.as_deref().unwrap_or(UNWRITABLE);
        Err(ApiError::new(503, "ServiceUnavailable", format!("{why}; nothing was stored, reads go on")))
    }
}

fn may_write(head: &http::request::Parts) -> bool {
    let is_read = matches!(head.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    // Access reviews are posted, and nothing of them is stored.
    !is_read && !head.uri.path().ends_with("reviews")
}
