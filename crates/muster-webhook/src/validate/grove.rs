//! Grove's kinds: the rules are Grove's, the answers are admission's.
//!
//! In: a request and what is known of the cluster. Out: a verdict. Must stay true: what is not known yet is not complained about.

use muster_grove::validate::protect::{self, Decision, Verb};
use muster_grove::validate::{
    Findings, Known, World as GroveWorld, binding as of_binding, part, set as of_set,
};
use muster_runtime::object::Strings;
use serde_json::Value;

use crate::request::{Asked, Caller, Operation};
use crate::settings::Settings;
use crate::verdict::Verdict;
use crate::world::World;

pub fn set(asked: &Asked<'_>, caller: &Caller<'_>, settings: &Settings, world: &dyn World) -> Verdict {
    if !caller.subresource.is_empty() {
        return Verdict::default();
    }
    let binding = |name: &str| match world.topology_binding(name) {
        None => Known::Unknown,
        Some(None) => Known::Missing,
        Some(Some(binding)) => Known::There((*binding).clone()),
    };
    let world = GroveWorld { options: &settings.grove.options, binding: &binding };
    match asked.operation {
        Operation::Create => Verdict::from(of_set::create(asked.object, &world)),
        Operation::Update => Verdict::from(of_set::update(asked.object, asked.old, &world)),
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

pub fn clique(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    judged(asked, part::clique, || world.clique_minimum(asked.namespace, asked.name))
}

pub fn group(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    judged(asked, part::group, || world.group_minimum(asked.namespace, asked.name))
}

/// A part by itself, or the number that the scale subresource writes: there the object is a Scale, and how many the part needs must
/// be known otherwise.
fn judged(
    asked: &Asked<'_>,
    rules: impl Fn(&Value, &Value) -> Findings,
    minimum: impl Fn() -> Option<i64>,
) -> Verdict {
    if !matches!(asked.operation, Operation::Create | Operation::Update) {
        return Verdict::default();
    }
    if asked.object["kind"] != "Scale" {
        return Verdict::from(rules(asked.object, asked.old));
    }
    let replicas = asked.object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    minimum().map_or_else(Verdict::default, |minimum| Verdict::from(part::scale(replicas, minimum)))
}

pub fn binding(asked: &Asked<'_>, settings: &Settings, _world: &dyn World) -> Verdict {
    if !matches!(asked.operation, Operation::Create | Operation::Update) {
        return Verdict::default();
    }
    let world = GroveWorld { options: &settings.grove.options, binding: &|_| Known::Unknown };
    Verdict::from(of_binding::binding(asked.object, asked.old, &world))
}

/// Whether somebody may touch what belongs to a set.
pub fn protect(asked: &Asked<'_>, caller: &Caller<'_>, settings: &Settings, world: &dyn World) -> Verdict {
    let grove = &settings.grove;
    if !grove.protect || grove.is_exempt(caller.user) {
        return Verdict::default();
    }
    let object = if asked.old.is_object() { asked.old } else { asked.object };
    let labels: Strings = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let request = protect::Request {
        verb: match asked.operation {
            Operation::Create => Verb::Create,
            Operation::Update => Verb::Update,
            Operation::Delete => Verb::Delete,
            Operation::Connect => Verb::Connect,
        },
        user: caller.user,
        kind: object["kind"].as_str().unwrap_or("the object"),
        labels: &labels,
        subresource: caller.subresource,
    };
    let Some(name) = protect::set_of(&request) else { return Verdict::default() };
    // Before the sets are known nobody can be told that he may not.
    let Some(set) = world.clique_set(asked.namespace, name) else { return Verdict::default() };
    let mut verdict = Verdict::default();
    match protect::decide(&request, set.as_deref(), &[]) {
        Decision::Allow => {}
        Decision::AllowWith(warning) => verdict.warn("metadata.labels", warning),
        Decision::Deny(why) => verdict.refuse("metadata.labels", why),
    }
    verdict
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::review::{Hook, Reviewer};
    use crate::settings::Grove;
    use crate::world::Given;

    fn reviewer() -> Reviewer {
        let set =
            json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"template": {"cliques": []}}});
        let grove = Grove { protect: true, users: vec!["us".into()], ..Grove::default() };
        let world = Given {
            sets: Some([(("ns".into(), "p".into()), Arc::new(serde_json::from_value(set).unwrap()))].into()),
            bindings: Some(Default::default()),
            minima: [(("PodClique", "ns".into(), "p-0-a".into()), 2)].into(),
            ..Given::default()
        };
        let settings = Settings { grove, ..Settings::default() };
        Reviewer { settings: Arc::new(settings), world: Arc::new(world), grouper: None }
    }

    fn founding() -> Value {
        json!({"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "test", "namespace": "ns"},
               "spec": {"replicas": 1, "template": {"cliques": [{"name": "workers", "spec": {"replicas": 2, "podSpec": {
                   "schedulerName": "kai-scheduler", "containers": [{"name": "worker", "image": "busybox"}]}}}]}}})
    }

    #[test]
    fn a_set_is_completed_and_then_judged() {
        let reviewer = reviewer();
        let mut object = founding();
        let first = object.clone();
        let asked = Asked {
            operation: Operation::Create,
            namespace: "ns",
            name: "test",
            uid: "",
            object: &first,
            old: &Value::Null,
        };
        let verdict = reviewer.judge(Hook::DefaultSet, &asked);
        object = verdict.made.unwrap();
        let clique = &object["spec"]["template"]["cliques"][0]["spec"];
        assert_eq!((&clique["minAvailable"], &clique["roleName"]), (&json!(2), &json!("workers")));
        assert!(reviewer.judge(Hook::ValidateSet, &Asked { object: &object, ..asked }).allows());

        let mut wrong = object.clone();
        wrong["spec"]["template"]["cliques"][0]["spec"]["minAvailable"] = json!(5);
        let verdict = reviewer.judge(Hook::ValidateSet, &Asked { object: &wrong, ..asked });
        assert_eq!(verdict.errors[0].field, "spec.template.cliques[0].spec.minAvailable");
        let mut packed = object.clone();
        packed["spec"]["template"]["topologyConstraint"] =
            json!({"topologyName": "gone", "pack": {"required": "rack"}});
        assert!(!reviewer.judge(Hook::ValidateSet, &Asked { object: &packed, ..asked }).allows());
    }

    #[test]
    fn scaling_stops_at_the_minimum() {
        let reviewer = reviewer();
        let scale = |name: &str, replicas: i64| {
            let object = json!({"kind": "Scale", "spec": {"replicas": replicas}});
            let (operation, old) = (Operation::Update, &Value::Null);
            let asked = Asked { operation, namespace: "ns", name, uid: "", object: &object, old };
            reviewer.judge(Hook::ValidateClique, &asked).allows()
        };
        assert!(scale("p-0-a", 2));
        assert!(!scale("p-0-a", 1));
        assert!(scale("unknown", 0));
    }

    #[test]
    fn what_belongs_to_a_set_is_kept_from_others() {
        let reviewer = reviewer();
        let owned = |set: &str| {
            json!({"kind": "PodClique", "metadata": {"labels": {
                "app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": set}}})
        };
        let (ours, orphan) = (owned("p"), owned("gone"));
        let judge = |user: &str, old: &Value| {
            let (operation, object) = (Operation::Delete, &Value::Null);
            let asked = Asked { operation, namespace: "ns", name: "", uid: "", object, old };
            reviewer.judge_for(Hook::ProtectManaged, &asked, &Caller { user, subresource: "" })
        };
        assert!(!judge("eve", &ours).allows());
        assert!(judge("us", &ours).allows());
        assert!(judge("system:serviceaccount:kube-system:generic-garbage-collector", &ours).allows());
        let verdict = judge("eve", &orphan);
        assert!(verdict.allows() && verdict.warnings.len() == 1);
    }
}
