//! Who owns the number of replicas after it was written through `/scale`.
//!
//! In: the object as it is to be, with the managers that it had. Out: the same with the managers that it has then. The API server keeps books of the
//! scale as of an object of its own, and what it makes of them has two marks: whoever owned the replicas by an update owns them in an entry without a
//! time, apart from the rest of what they own; and where nobody owned them, nobody does.

use super::managers::{Manager, Operation, read_managers, write_managers};
use super::{FieldSet, Path, Request};
use serde_json::Value;

/// Attributes the replicas at `path`, a list of member names, to the request. `before` are the replicas there were.
pub fn scaled(object: &mut Value, path: &[&str], before: i64, request: &Request<'_>) {
    let Ok(mut managers) = read_managers(object) else { return };
    let after = path.iter().try_fold(&*object, |value, name| value.get(name));
    let after = after.and_then(Value::as_i64).unwrap_or(0);
    let mut replicas = FieldSet::new();
    replicas.insert(Path::fields(path.iter().copied()));
    let mut owners: Vec<Manager> =
        managers.iter().filter(|manager| replicas.is_subset(&manager.fields)).cloned().collect();
    let is_same = before == after;
    if !owners.is_empty() && !is_same {
        let manager = Manager {
            name: if request.manager.is_empty() { "unknown" } else { request.manager }.to_owned(),
            operation: Operation::Update,
            api_version: request.api_version.to_owned(),
            subresource: Some("scale".to_owned()),
            time: None,
            fields: FieldSet::new(),
        };
        // No replicas are written as none, and nobody owns what is not there.
        owners = if after == 0 { Vec::new() } else { vec![manager] };
    }
    // An applier that keeps the replicas keeps its entry.
    let keeps = |manager: &Manager| is_same && manager.operation == Operation::Apply;
    for manager in managers.iter_mut().filter(|manager| !keeps(manager)) {
        manager.fields = manager.fields.difference(&replicas);
    }
    managers.retain(|manager| !manager.fields.is_empty());
    for mut owner in owners.into_iter().filter(|owner| !keeps(owner)) {
        (owner.time, owner.fields) = (None, replicas.clone());
        managers.push(owner);
    }
    write_managers(object, &managers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, time: Option<&str>, fields: Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        if let Some(time) = time {
            entry["time"] = time.into();
        }
        entry
    }

    #[track_caller]
    fn check(had: Value, (before, after): (i64, i64), expected: Value) {
        let mut object = json!({"metadata": {"managedFields": had}, "spec": {"replicas": after}});
        let request = Request {
            manager: "bob",
            api_version: "apps/v1",
            subresource: Some("scale"),
            now: "2026-01-01T00:00:00Z",
            force: false,
            ignored: FieldSet::EMPTY,
        };
        scaled(&mut object, &["spec", "replicas"], before, &request);
        assert_eq!(object["metadata"].get("managedFields").cloned().unwrap_or_default(), expected);
    }

    #[test]
    fn replicas_go_into_an_entry_of_their_own() {
        let all = json!({"f:spec": {"f:paused": {}, "f:replicas": {}}});
        let (rest, replicas) = (json!({"f:spec": {"f:paused": {}}}), json!({"f:spec": {"f:replicas": {}}}));
        let time = Some("2026-01-01T00:00:00Z");
        let apart = json!([
            entry("alice", "Update", None, replicas.clone()),
            entry("alice", "Update", time, rest.clone())
        ]);
        check(json!([entry("alice", "Update", time, all.clone())]), (1, 1), apart);
        let mut bob = entry("bob", "Update", None, replicas);
        bob["subresource"] = "scale".into();
        check(
            json!([entry("alice", "Update", time, all.clone())]),
            (1, 2),
            json!([bob, entry("alice", "Update", time, rest.clone())]),
        );
        check(
            json!([entry("alice", "Update", time, all.clone())]),
            (1, 0),
            json!([entry("alice", "Update", time, rest.clone())]),
        );
        // Nobody owned them, so nobody does.
        let had = json!([entry("alice", "Update", time, rest)]);
        check(had.clone(), (1, 2), had);
        let applied = json!([entry("alice", "Apply", time, all)]);
        check(applied.clone(), (2, 2), applied);
    }
}
