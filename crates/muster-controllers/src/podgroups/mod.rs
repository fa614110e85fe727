//! The status of pod groups: what a gang asks for and holds, and how far it is.
//!
//! KAI's pod group has no phase; what the phase would say is in three conditions, with the counts in their messages:
//!
//! | condition | true when | reasons |
//! |---|---|---|
//! | `Scheduled` | the minimum is on nodes | `Scheduled`, `NoPods`, `Incomplete` (too few pods exist), `Waiting` |
//! | `Running` | the minimum runs | `Running`, `Pending`, `Starting`, `BelowMinimum`, `Completed` |
//! | `Completed` | every pod has ended | `Succeeded`, `Failed`, `InProgress` |

pub mod plan;
pub mod run;
