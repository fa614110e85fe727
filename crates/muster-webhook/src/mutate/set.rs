//! What a PodCliqueSet means when it does not say, written into it.

use crate::request::{Asked, Caller, Operation};
use crate::verdict::Verdict;

pub fn mutate(asked: &Asked<'_>, caller: &Caller<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    let is_written = matches!(asked.operation, Operation::Create | Operation::Update);
    // Whoever takes a finalizer off an old set must not find it changed.
    let is_going = asked.object["metadata"].get("deletionTimestamp").is_some_and(|at| !at.is_null());
    if is_written && !is_going && caller.subresource.is_empty() {
        let mut made = asked.object.clone();
        muster_grove::defaults::set(&mut made);
        verdict.make(asked.object, made);
    }
    verdict
}
