//! Admission in the server's own process: every hook that a request passes, one after the other.
//!
//! In: a request as a server sees it. Out: the object as the hooks that change objects leave it, or what the hooks that judge say of it. Must stay
//! true: as in Kubernetes each hook sees the object as the one before left it, and those that judge see it last; the answer has the warnings of all.

use std::sync::OnceLock;

use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::review::{Hook, Reviewer};
use crate::verdict::Verdict;

/// One request.
#[derive(Debug, Clone, Copy)]
pub struct Passing<'a> {
    pub group: &'a str,
    pub plural: &'a str,
    /// Which part of the object is written, such as `scale`; `None` for all of it.
    pub part: Option<&'a str>,
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Null on create.
    pub old: &'a Value,
}

/// A door for requests that opens once there is somebody to judge them: until then nothing is judged, as with a webhook that is not registered yet.
pub struct Door {
    reviewer: OnceLock<Reviewer>,
    /// Tells each request from every other.
    uid: Box<dyn Fn() -> String + Send + Sync>,
}

impl Door {
    pub fn new(uid: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Door { reviewer: OnceLock::new(), uid: Box::new(uid) }
    }

    /// From now on requests are judged.
    pub fn open(&self, reviewer: Reviewer) {
        // A second start finds the first one's reviewer, which does the same.
        let _ = self.reviewer.set(reviewer);
    }

    /// Whether requests are judged by now.
    pub fn is_open(&self) -> bool {
        self.reviewer.get().is_some()
    }

    /// Passes an object through the hooks that change it.
    pub fn change(&self, passing: &Passing<'_>, object: &mut Value) -> Verdict {
        match self.reviewer.get() {
            Some(reviewer) => reviewer.change(passing, object, &*self.uid),
            None => Verdict::default(),
        }
    }

    /// Passes an object through the hooks that judge it; null on delete.
    pub fn judge(&self, passing: &Passing<'_>, object: &Value) -> Verdict {
        self.reviewer.get().map_or_else(Verdict::default, |reviewer| reviewer.judge_all(passing, object))
    }
}

impl Reviewer {
    /// Passes an object through the hooks that change it, up to the first that refuses it.
    pub fn change(&self, passing: &Passing<'_>, object: &mut Value, uid: &dyn Fn() -> String) -> Verdict {
        let mut sum = Verdict::default();
        for hook in passing.hooks(true) {
            // Only pods get names that must be new.
            let uid = if hook == Hook::MutatePod { uid() } else { String::new() };
            let mut verdict = self.judge(hook, &passing.asked(object, &uid));
            if let Some(made) = verdict.made.take() {
                *object = made;
            }
            sum.add(verdict);
            if !sum.allows() {
                break;
            }
        }
        sum
    }

    /// Passes an object through the hooks that judge it, up to the first that refuses it.
    pub fn judge_all(&self, passing: &Passing<'_>, object: &Value) -> Verdict {
        let mut sum = Verdict::default();
        for hook in passing.hooks(false) {
            sum.add(self.judge(hook, &passing.asked(object, "")));
            if !sum.allows() {
                break;
            }
        }
        sum
    }
}

impl<'a> Passing<'a> {
    fn hooks(&self, mutating: bool) -> impl Iterator<Item = Hook> + use<> {
        Hook::passed(self.group, self.plural, self.part, self.operation, mutating)
    }

    fn asked<'b>(&self, object: &'b Value, uid: &'b str) -> Asked<'b>
    where
        'a: 'b,
    {
        let Passing { operation, namespace, name, old, .. } = *self;
        Asked { operation, namespace, name, uid, object, old }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::mutate::pod::Membership;
    use crate::settings::Settings;
    use crate::world::Given;

    fn door(world: Given) -> Door {
        let settings = Settings { kueue: Some(Default::default()), ..Settings::default() };
        let grouper = |_: &Value| {
            let mut membership = Membership::default();
            membership.annotations.insert("group".into(), "g".into());
            Some(membership)
        };
        let door = Door::new(|| "u".into());
        let (settings, world) = (Arc::new(settings), Arc::new(world));
        door.open(Reviewer { settings, world, grouper: Some(Arc::new(grouper)) });
        door
    }

    fn passing<'a>(group: &'a str, plural: &'a str) -> Passing<'a> {
        let (operation, old) = (Operation::Create, &Value::Null);
        Passing { group, plural, part: None, operation, namespace: "ns", name: "x", old }
    }

    fn pod() -> Value {
        json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
               "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "a"}]}})
    }

    /// What two hooks do to one pod is done.
    #[test]
    fn each_hook_sees_what_the_one_before_did() {
        let door = door(Given { local_queues: Some(Default::default()), ..Given::default() });
        let mut changed = pod();
        assert!(door.change(&passing("", "pods"), &mut changed).allows());
        assert_eq!(changed["metadata"]["annotations"]["group"], "g");
        assert_eq!(changed["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/admission"}]));
        let mut again = changed.clone();
        assert!(door.change(&passing("", "pods"), &mut again).allows());
        assert_eq!(again, changed, "a second look changes nothing");
        assert!(door.judge(&passing("", "pods"), &changed).allows());
    }

    #[test]
    fn the_first_refusal_ends_it_and_a_closed_door_is_no_door() {
        let mut bad = pod();
        bad["metadata"]["annotations"] = json!({"gpu-fraction": "2"});
        bad["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!("no");
        let verdict = door(Given { local_queues: Some(Default::default()), ..Given::default() })
            .judge(&passing("", "pods"), &bad);
        assert!(verdict.refusal().starts_with("metadata.annotations[gpu-fraction]"), "{}", verdict.refusal());
        let closed = Door::new(String::new);
        assert!(closed.judge(&passing("", "pods"), &bad).allows());
        assert_eq!(closed.change(&passing("", "pods"), &mut bad), Verdict::default());
    }
}
