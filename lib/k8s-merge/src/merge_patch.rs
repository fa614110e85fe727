//! JSON merge patch, as RFC 7396 defines it.
//!
//! In: any two JSON values. Out: the first, changed in place. Must stay true: nothing is refused, nothing outside the members
//! named by the patch changes, and a patch that is itself free of nulls can be read back from the result. The walk keeps its
//! own stack, so that the depth of the patch does not matter.

use serde_json::Value;

/// Applies a JSON merge patch (`application/merge-patch+json`) to `target`.
///
/// Members of an object are merged, `null` removes a member, and anything else replaces what was there.
///
/// ```
/// use serde_json::json;
///
/// let mut pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}, "args": [1, 2]});
/// k8s_merge::merge_patch(&mut pod, &json!({"metadata": {"labels": {"tier": null}}, "args": [3]}));
/// assert_eq!(pod, json!({"metadata": {"labels": {"app": "web"}}, "args": [3]}));
/// ```
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let mut pending = vec![(target, patch)];
    while let Some((target, patch)) = pending.pop() {
        let Value::Object(changes) = patch else {
            *target = patch.clone();
            continue;
        };
        if !target.is_object() {
            *target = Value::Object(serde_json::Map::new());
        }
        let Value::Object(members) = target else { continue };
        for (name, change) in changes {
            if change.is_null() {
                members.remove(name);
            } else if !members.contains_key(name) {
                members.insert(name.clone(), Value::Null);
            }
        }
        for (name, member) in members.iter_mut() {
            if let Some(change) = changes.get(name) {
                pending.push((member, change));
            }
        }
    }
}
