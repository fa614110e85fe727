//! The certificates that the webhooks are served with: made here, renewed here, without anybody's help.
//!
//! `plan` is pure: what there is and what time it is in, what to make out. `make` makes keys and certificates. `keep` holds
//! them in a Secret that all replicas share, or in memory, and hands them to the listener ([`Holder`]) and to whoever
//! registers the webhooks.
//!
//! A certificate lives 90 days and is renewed after 60. The authority that signs it lives ten years; a year before its
//! end a second one is made, and both are trusted until the first has ended, so that nothing that is in use is ever signed
//! by somebody whom the API server does not trust yet, or no longer trusts.

mod keep;
mod make;
mod plan;

pub use keep::{Holder, Home, keep};
pub use make::{CertError, renew};
pub use plan::{Authority, Chest, Leaf};
