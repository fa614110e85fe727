//! Deletion. In: a key and options. Out: the object gone, or marked as going.
//!
//! Three things can hold an object: a grace period (pods), finalizers, and for namespaces their content. Garbage collection
//! by owner (`gc`) and namespace content (`namespaces`) run in the background and use the same [`ApiServer::delete_object`].

use crate::admission::{Operation, Review};
use crate::meta;
use crate::read::{Filter, list_metadata, strip_item_types};
use crate::registry::Served;
use crate::reply::Reply;
use crate::server::ApiServer;
use crate::status::{self, ApiError};
use crate::store::{Clash, Expect, Key, Range};
use crate::write::{Context, parse_body};
use serde_json::{Value, json};
use std::sync::Arc;

/// Finalizer under which dependents go first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer under which dependents are set free.
pub const ORPHAN: &str = "orphan";

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are set free first.
    Orphan,
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Seconds that a pod gets; `None` for its own wish.
    pub grace_seconds: Option<i64>,
    /// What becomes of dependents; `None` for the kind's habit.
    pub propagation: Option<Propagation>,
    /// The uid it must have.
    pub uid: Option<String>,
    /// The resourceVersion it must have.
    pub resource_version: Option<String>,
    /// Only tell what would happen.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From the query and, if there is one, the body.
    pub fn parse(cx: &Context, body: &[u8]) -> Result<DeleteOptions, ApiError> {
        let q = &cx.query;
        let (policy, orphan);
        let mut options = DeleteOptions::default();
        if body.is_empty() {
            (policy, orphan) = (q.propagation_policy.clone(), q.orphan_dependents);
            options.grace_seconds = q.grace_period_seconds;
            options.dry_run = q.dry_run;
        } else {
            // Whoever sends a body says everything in it.
            let body = parse_body(&cx.content_type, body, "DeleteOptions")?;
            if !matches!(body["kind"].as_str(), None | Some("" | "DeleteOptions")) {
                return Err(ApiError::bad_request(format!(
                    "decoded object cannot be converted to DeleteOptions: it is a {}",
                    body["kind"]
                )));
            }
            options.grace_seconds = body["gracePeriodSeconds"].as_i64();
            policy = body["propagationPolicy"].as_str().map(str::to_string);
            orphan = body["orphanDependents"].as_bool();
            options.uid = body["preconditions"]["uid"].as_str().map(str::to_string);
            options.resource_version = body["preconditions"]["resourceVersion"].as_str().map(str::to_string);
            options.dry_run = body["dryRun"].as_array().is_some_and(|d| d.contains(&json!("All")));
        }
        let invalid = |error| Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        if policy.is_some() && orphan.is_some() {
            let text = "orphanDependents and deletionPropagation cannot be both set";
            return invalid(k8s_schema::FieldError::invalid("propagationPolicy", json!(policy), text));
        }
        options.propagation = match policy.as_deref() {
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            None => orphan.map(|o| if o { Propagation::Orphan } else { Propagation::Background }),
            Some(other) => {
                return invalid(k8s_schema::FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    ["Foreground", "Background", "Orphan", "nil"],
                ));
            }
        };
        Ok(options)
    }
}

/// What a delete did.
pub struct Deleted {
    /// The last or, if it is still there, present state.
    pub object: Value,
    /// Whether it is gone.
    pub gone: bool,
}

/// Kinds whose delete answers with the object and not with a Status.
fn answers_with_object(served: &Served) -> bool {
    matches!(
        (served.group.as_str(), served.plural.as_str()),
        (
            "",
            "pods"
                | "services"
                | "serviceaccounts"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "podtemplates"
                | "resourcequotas"
        ) | (
            "storage.k8s.io",
            "storageclasses" | "volumeattachments" | "csinodes" | "csidrivers" | "volumeattributesclasses"
        ) | ("resource.k8s.io", _)
    )
}

/// `spec.finalizers` of a namespace.
pub fn namespace_finalizers(object: &Value) -> Vec<String> {
    meta::strings(object["spec"].get("finalizers"))
}

/// Whether anything keeps an object that is to go: finalizers, a grace period, or a namespace's content.
pub fn is_held(served: &Served, object: &Value) -> bool {
    !meta::finalizers(object).is_empty()
        || object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0
        || (served.is("", "namespaces") && !namespace_finalizers(object).is_empty())
}

impl ApiServer {
    /// Answers a DELETE of one object.
    pub(crate) async fn delete(&self, cx: &Context, name: &str, body: &[u8]) -> Result<Reply, ApiError> {
        let options = DeleteOptions::parse(cx, body)?;
        let mut warnings = pods_stay(&cx.served, &options);
        let deleted = self.delete_reviewed(cx, name, &options, &mut warnings).await;
        let deleted = deleted.map_err(|error| error.warned(warnings.clone()))?;
        let reply = if deleted.gone && !answers_with_object(&cx.served) {
            Reply::json(200, status::deleted(&cx.served.group_resource(), name, meta::uid(&deleted.object)))
        } else {
            let object = self.convert(deleted.object, &cx.served, &cx.served.api_version()).await?;
            Reply::json(200, self.shape(&cx.served, object, cx.form, &cx.query))
        };
        Ok(reply.warn(warnings))
    }

    async fn delete_reviewed(
        &self,
        cx: &Context,
        name: &str,
        options: &DeleteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Deleted, ApiError> {
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        let stored = self.must_find(&cx.served, &key)?;
        let live = self.read(&stored, &cx.served).await?;
        check_preconditions(&cx.served, &live, options)?;
        let mut review = Review::new(Operation::Delete, cx, None, Some(Arc::new(live)));
        review.name = name.to_string();
        let admitted = self.validate(&mut review, &Value::Null).await;
        warnings.append(&mut review.warnings);
        let _guard = admitted?;
        self.delete_object(&cx.served, &key, options)
    }

    /// Answers a DELETE of a collection.
    pub(crate) async fn delete_collection(&self, cx: &Context, body: &[u8]) -> Result<Reply, ApiError> {
        let options = DeleteOptions::parse(cx, body)?;
        let filter = Filter::new(&cx.served, cx.namespace.as_deref(), &cx.query)?;
        let range =
            Range { namespace: filter.namespace.as_deref(), limit: cx.query.limit, ..Range::default() };
        let page = self
            .store()
            .list(&cx.served.table, &range, &mut |o| filter.passes(o))
            .map_err(|e| ApiError::expired(e.to_string()))?;
        let mut items = Vec::new();
        for stored in &page.items {
            let live = self.read(stored, &cx.served).await?;
            let mut review = Review::new(Operation::Delete, cx, None, Some(Arc::new(live.clone())));
            review.name = stored.key.name.to_string();
            let _guard = self.validate(&mut review, &Value::Null).await?;
            match self.delete_object(&cx.served, &stored.key, &options) {
                Ok(_) => items.push(live),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        strip_item_types(&cx.served, &mut items);
        let answer = json!({
            "kind": cx.served.list_kind, "apiVersion": cx.served.api_version(),
            "metadata": list_metadata(&cx.served, &page, true), "items": items,
        });
        Ok(Reply::json(200, answer).warn(pods_stay(&cx.served, &options)))
    }

    /// Deletes an object or begins to; the returned object is in its storage version.
    pub(crate) fn delete_object(
        &self,
        served: &Arc<Served>,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let gr = served.group_resource();
        let home = self.kind_of_table(&served.table).unwrap_or_else(|| served.clone());
        loop {
            let stored = self.must_find(served, key)?;
            let mut object = self.in_storage_version(self.parse_stored(&stored, &home)?, &home);
            check_preconditions(&home, &object, options)?;
            let before = object.clone();
            // While a pod has time left, all that a second delete can do is to shorten it.
            let left = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            let asked = options.grace_seconds.map(|asked| if asked < 0 { 1 } else { asked });
            if home.is("", "pods")
                && meta::terminating(&object)
                && left > 0
                && asked.is_none_or(|asked| asked >= left)
            {
                return Ok(Deleted { object, gone: false });
            }
            if home.is("apiextensions.k8s.io", "customresourcedefinitions") && !meta::terminating(&object) {
                self.hold_crd(&mut object);
            }
            self.mark(&home, &mut object, options);
            let holds = is_held(&home, &object);
            let is_graceful = home.is("", "pods") && !(meta::terminating(&before) && left == 0);
            if !holds && !is_graceful {
                // Gone at once: nothing was written of its going, and its last state says so.
                object = before.clone();
            }
            if options.dry_run {
                return Ok(Deleted { object, gone: !holds });
            }
            if !holds {
                let mut revision = stored.revision;
                if object != before {
                    // Whoever watches a pod is told that it goes, however soon it is gone.
                    match self.commit(&home, key, Expect::At(revision), &object) {
                        Ok(now) => revision = now.revision,
                        Err(Clash::Absent) => return Err(ApiError::not_found(&gr, &key.name)),
                        Err(_) => continue,
                    }
                }
                match self.erase(&home, key, revision, &object) {
                    Ok(last) => {
                        self.after_delete(&home, key);
                        return Ok(Deleted { object: self.parse_stored(&last, &home)?, gone: true });
                    }
                    Err(Clash::Absent) => return Err(ApiError::not_found(&gr, &key.name)),
                    Err(_) => continue,
                }
            }
            if object == before {
                return Ok(Deleted { object, gone: false });
            }
            match self.commit(&home, key, Expect::At(stored.revision), &object) {
                Ok(now) => return Ok(Deleted { object: self.parse_stored(&now, &home)?, gone: false }),
                Err(Clash::Absent) => return Err(ApiError::not_found(&gr, &key.name)),
                Err(_) => {}
            }
        }
    }

    /// A CRD goes after its objects.
    fn hold_crd(&self, crd: &mut Value) {
        let mut finalizers = meta::finalizers(crd);
        if !finalizers.iter().any(|f| f == crate::crd::CLEANUP_FINALIZER) {
            finalizers.push(crate::crd::CLEANUP_FINALIZER.into());
            meta::set_finalizers(crd, &finalizers);
        }
        let condition = crate::crd::terminating_condition(&self.clock().rfc3339());
        let conditions = meta::member(crd, "status").entry("conditions").or_insert_with(|| json!([]));
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.push(condition);
        }
    }

    /// Writes the marks of deletion: time, grace period, finalizers of the propagation policy, a namespace's phase.
    fn mark(&self, served: &Served, object: &mut Value, options: &DeleteOptions) {
        let mut finalizers = meta::finalizers(object);
        let was_terminating = meta::terminating(object);
        let propagation = options.propagation.unwrap_or_else(|| {
            if finalizers.iter().any(|f| f == FOREGROUND) {
                Propagation::Foreground
            } else if finalizers.iter().any(|f| f == ORPHAN) || orphans_by_default(served) {
                Propagation::Orphan
            } else {
                Propagation::Background
            }
        });
        finalizers.retain(|f| f != FOREGROUND && f != ORPHAN);
        match propagation {
            Propagation::Foreground => finalizers.push(FOREGROUND.into()),
            Propagation::Orphan => finalizers.push(ORPHAN.into()),
            Propagation::Background => {}
        }
        meta::set_finalizers(object, &finalizers);
        let grace = grace_seconds(served, object, options.grace_seconds);
        let now = self.clock().now();
        if was_terminating {
            let current = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            // A second delete may shorten the grace period, never lengthen it.
            if grace < current {
                let moved = meta::text(object, "deletionTimestamp")
                    .parse::<jiff::Timestamp>()
                    .ok()
                    .and_then(|t| t.checked_sub(jiff::SignedDuration::from_secs(current - grace)).ok())
                    .unwrap_or(now);
                let metadata = meta::edit(object);
                metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
                metadata.insert("deletionTimestamp".into(), crate::clock::seconds(moved).into());
            }
        } else {
            let when = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
            let generation = object["metadata"]["generation"].as_i64();
            let own_way =
                served.is("", "namespaces") || served.is("apiextensions.k8s.io", "customresourcedefinitions");
            if served.is("", "namespaces") {
                meta::set_at(object, "status.phase", "Terminating".into());
            }
            let metadata = meta::edit(object);
            metadata.insert("deletionTimestamp".into(), crate::clock::seconds(when).into());
            // Namespaces and CRDs have a way of their own to go, without grace and without a new generation.
            if own_way {
                return;
            }
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
            if let Some(generation) = generation {
                metadata.insert("generation".into(), (generation + 1).into());
            }
        }
    }
}

/// Refuses to delete another object than the one that was meant.
fn check_preconditions(served: &Served, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    // Here, alone, the real server names the kind and not the resource.
    let named = status::GroupResource { group: served.group.clone(), resource: served.kind.clone() };
    let refuse = |what: &str, wanted: &str, found: &str, maybe: &str| {
        let text = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object might have been {maybe}"
        );
        ApiError::conflict(&named, meta::name(object), &text)
    };
    let (uid, version) = (meta::uid(object), meta::text(object, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(refuse("UID", wanted, uid, "deleted and then recreated"));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        return Err(refuse("ResourceVersion", wanted, version, "modified"));
    }
    Ok(())
}

fn pods_stay(served: &Served, options: &DeleteOptions) -> Vec<String> {
    let is_silent = !served.is("batch", "jobs") || options.propagation.is_some();
    if is_silent { Vec::new() } else { vec![PODS_STAY.into()] }
}

/// What the server says when a Job is deleted and nobody said what becomes of its pods.
const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Jobs, alone among today's kinds, leave their pods behind unless told otherwise.
fn orphans_by_default(served: &Served) -> bool {
    served.is("batch", "jobs") || served.is("", "replicationcontrollers")
}

/// Only pods wait: for their own grace period or the given one, unless nothing of them runs.
fn grace_seconds(served: &Served, pod: &Value, asked: Option<i64>) -> i64 {
    if !served.is("", "pods") {
        return 0;
    }
    let phase = meta::text_at(pod, "status.phase");
    if meta::text_at(pod, "spec.nodeName").is_empty() || matches!(phase, "Succeeded" | "Failed") {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    match asked.unwrap_or(own) {
        // A negative wish means "as soon as possible", which is one second, not an erased record.
        n if n < 0 => 1,
        n => n,
    }
}
