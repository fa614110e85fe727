//! ControllerRevisions: the templates that StatefulSets and DaemonSets have had.
//!
//! In: an owner's template and its revisions. Out: the revision of the template, made or raised if need be, and old ones
//! cut to the limit. Must stay true: equal templates share one revision, and the newest has the highest number.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{ApiError, Delete, Patch};
use crate::context::Context;
use crate::json::{same_but_zeros, short_hash};
use crate::object::{ControllerRevision, Object, controller_ref};
use crate::store::Store;

/// The label by which a pod says which template it was made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// What must be done to have the template's revision.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    Is(Arc<ControllerRevision>),
    /// It exists but is not the newest: a rollback.
    Raise(Arc<ControllerRevision>, i64),
    Create {
        hash: String,
        revision: i64,
    },
}

/// The form in which `kubectl rollout undo` applies a revision.
pub fn revision_data(template: &Value) -> Value {
    let mut template = template.clone();
    if template.is_object() {
        template["$patch"] = json!("replace");
    }
    json!({"spec": {"template": template}})
}

/// The template inside a revision.
pub fn template_of(revision: &ControllerRevision) -> Value {
    let mut template = revision.data.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
    if let Some(map) = template.as_object_mut() {
        map.remove("$patch");
    }
    template
}

pub fn plan(template: &Value, existing: &[Arc<ControllerRevision>], collisions: i64) -> Wanted {
    let data = revision_data(template);
    let newest = existing.iter().map(|r| r.revision).max().unwrap_or(0);
    let equal = existing.iter().filter(|r| same_but_zeros(&r.data, &data)).max_by_key(|r| r.revision);
    match equal {
        Some(found) if found.revision == newest => Wanted::Is(found.clone()),
        Some(found) => Wanted::Raise(found.clone(), newest + 1),
        None => Wanted::Create { hash: short_hash(&data, collisions), revision: newest + 1 },
    }
}

/// Revisions beyond the limit that nothing uses, oldest first.
pub fn superfluous(
    existing: &[Arc<ControllerRevision>],
    in_use: &[&str],
    limit: i64,
) -> Vec<Arc<ControllerRevision>> {
    let mut unused: Vec<Arc<ControllerRevision>> =
        existing.iter().filter(|r| !in_use.contains(&r.metadata.name.as_str())).cloned().collect();
    unused.sort_by_key(|r| r.revision);
    let n_extra = unused.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    unused.truncate(n_extra);
    unused
}

/// Makes the template's revision be there.
pub async fn ensure<O: Object>(
    cx: &Context,
    store: &Store<ControllerRevision>,
    owner: &O,
    template: &Value,
    mut collisions: i64,
) -> Result<Arc<ControllerRevision>, ApiError> {
    loop {
        match plan(template, &store.owned_by(&owner.meta().uid), collisions) {
            Wanted::Is(found) => return Ok(found),
            Wanted::Raise(found, revision) => {
                let patch = json!({"revision": revision});
                let raised: ControllerRevision = cx.api.patch(&found.key(), "", Patch::Merge, &patch).await?;
                store.enter(raised.clone());
                return Ok(Arc::new(raised));
            }
            Wanted::Create { hash, revision } => {
                let mut labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
                labels[HASH_LABEL] = json!(hash);
                let body = json!({
                    "apiVersion": "apps/v1",
                    "kind": "ControllerRevision",
                    "metadata": {
                        "name": format!("{}-{hash}", owner.meta().name),
                        "namespace": owner.meta().namespace,
                        "labels": labels,
                        "ownerReferences": [controller_ref(owner)],
                    },
                    "data": revision_data(template),
                    "revision": revision,
                });
                match cx.api.create::<ControllerRevision>(&owner.meta().namespace, &body).await {
                    Ok(made) => {
                        store.enter(made.clone());
                        return Ok(Arc::new(made));
                    }
                    Err(error) if error.already_exists() && collisions < 20 => {
                        let key = crate::object::Key::new(
                            owner.meta().namespace.clone(),
                            format!("{}-{hash}", owner.meta().name),
                        );
                        let there: ControllerRevision = cx.api.get(&key).await?;
                        if there.metadata.controlled_by(&owner.meta().uid)
                            && same_but_zeros(&there.data, &revision_data(template))
                        {
                            store.enter(there.clone());
                            return Ok(Arc::new(there));
                        }
                        collisions += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

pub async fn trim<O: Object>(
    cx: &Context,
    store: &Store<ControllerRevision>,
    owner: &O,
    in_use: &[&str],
    limit: i64,
) -> Result<(), ApiError> {
    for revision in superfluous(&store.owned_by(&owner.meta().uid), in_use, limit) {
        match cx.api.delete::<ControllerRevision>(&revision.key(), Delete::default()).await {
            Err(error) if !error.not_found() => return Err(error),
            _ => store.remove(&revision.key(), &revision.metadata.uid),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64, template: Value) -> Arc<ControllerRevision> {
        let mut revision =
            ControllerRevision { data: revision_data(&template), revision: number, ..Default::default() };
        revision.metadata.name = name.into();
        Arc::new(revision)
    }

    #[track_caller]
    fn check(template: Value, existing: &[Arc<ControllerRevision>], expected: &str) {
        let shown = match plan(&template, existing, 0) {
            Wanted::Is(r) => r.metadata.name.clone(),
            Wanted::Raise(r, n) => format!("{} to {n}", r.metadata.name),
            Wanted::Create { revision, .. } => format!("create {revision}"),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn revisions() {
        let (a, b) = (json!({"spec": "a"}), json!({"spec": "b"}));
        let have = [revision("a", 1, a.clone()), revision("b", 2, b.clone())];
        check(a.clone(), &[], "create 1");
        check(b, &have, "b");
        check(a.clone(), &have, "a to 3");
        check(json!({"spec": "c"}), &have, "create 3");
        assert_eq!(template_of(&have[0]), a);
        let names = |limit: i64| -> Vec<String> {
            superfluous(&have, &["b"], limit).iter().map(|r| r.metadata.name.clone()).collect()
        };
        assert_eq!(names(0), ["a"]);
        assert!(names(1).is_empty());
        assert_eq!(names(-3), ["a"]);
    }
}
