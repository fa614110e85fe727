//! The rules of PodCliques and PodCliqueScalingGroups: they are made by us, and scaled by others.

use serde_json::Value;

use super::Findings;
use crate::object::{PodClique, PodCliqueScalingGroup};

const FROZEN: &str = "cannot be changed; edit the PodCliqueSet";

fn is_going(object: &Value) -> bool {
    object.get("metadata").is_some_and(|meta| meta.get("deletionTimestamp").is_some_and(|t| !t.is_null()))
}

/// Judges a clique; `old` is null when it is new.
pub fn clique(object: &Value, old: &Value) -> Findings {
    let mut findings = Findings::default();
    if is_going(object) || object.get("spec") == old.get("spec") {
        return findings;
    }
    let Ok(new) = serde_json::from_value::<PodClique>(object.clone()) else {
        findings.refuse("spec", "cannot be read");
        return findings;
    };
    let min = new.spec.min_available.unwrap_or(1);
    below("spec.replicas", new.spec.replicas, min, &mut findings);
    if let Ok(old) = serde_json::from_value::<PodClique>(old.clone())
        && !old.spec.pod_spec.is_null()
    {
        if new.spec.min_available != old.spec.min_available {
            findings.refuse("spec.minAvailable", FROZEN);
        }
        if new.spec.role_name != old.spec.role_name {
            findings.refuse("spec.roleName", FROZEN);
        }
        if new.spec.starts_after != old.spec.starts_after {
            findings.refuse("spec.startsAfter", FROZEN);
        }
    }
    findings
}

/// Judges a scaling group; `old` is null when it is new.
pub fn group(object: &Value, old: &Value) -> Findings {
    let mut findings = Findings::default();
    if is_going(object) || object.get("spec") == old.get("spec") {
        return findings;
    }
    let Ok(new) = serde_json::from_value::<PodCliqueScalingGroup>(object.clone()) else {
        findings.refuse("spec", "cannot be read");
        return findings;
    };
    below(
        "spec.replicas",
        new.spec.replicas.unwrap_or(1),
        new.spec.min_available.unwrap_or(1),
        &mut findings,
    );
    if new.spec.clique_names.is_empty() {
        findings.refuse("spec.cliqueNames", "is empty; name the cliques that scale together");
    }
    if let Ok(old) = serde_json::from_value::<PodCliqueScalingGroup>(old.clone())
        && !old.spec.clique_names.is_empty()
    {
        if new.spec.min_available() != old.spec.min_available() {
            findings.refuse("spec.minAvailable", FROZEN);
        }
        if new.spec.clique_names != old.spec.clique_names {
            findings.refuse("spec.cliqueNames", FROZEN);
        }
    }
    findings
}

/// Judges a new number of replicas alone, as the scale subresource writes it.
pub fn scale(replicas: i64, min_available: i64) -> Findings {
    let mut findings = Findings::default();
    below("spec.replicas", replicas, min_available, &mut findings);
    findings
}

fn below(field: &str, replicas: i64, min: i64, findings: &mut Findings) {
    if replicas < min {
        let message = format!(
            "is {replicas}, and the gang needs {min}; write at least that, or scale the PodCliqueSet"
        );
        findings.refuse(field, message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn show(findings: &Findings) -> String {
        findings.errors.iter().map(|e| e.field.replace("spec.", "")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn cliques() {
        let make = |replicas: i64, min: i64, role: &str| json!({"spec": {"replicas": replicas, "minAvailable": min, "roleName": role, "podSpec": {}}});
        let old = make(3, 2, "r");
        let judged = |new: Value| show(&clique(&new, &old));
        assert_eq!(judged(make(5, 2, "r")), "");
        assert_eq!(judged(make(1, 2, "r")), "replicas");
        assert_eq!(judged(make(3, 1, "r")), "minAvailable");
        assert_eq!(judged(make(3, 2, "x")), "roleName");
        assert_eq!(show(&clique(&make(1, 2, "r"), &Value::Null)), "replicas");
        assert_eq!(show(&clique(&json!({"spec": 5}), &Value::Null)), "spec");
        let mut going = make(0, 2, "r");
        going["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(judged(going), "");
    }

    #[test]
    fn groups() {
        let make = |replicas: i64, min: i64, names: &[&str]| json!({"spec": {"replicas": replicas, "minAvailable": min, "cliqueNames": names}});
        let old = make(3, 2, &["a"]);
        let judged = |new: Value| show(&group(&new, &old));
        assert_eq!(judged(make(4, 2, &["a"])), "");
        assert_eq!(judged(make(1, 2, &["a"])), "replicas");
        assert_eq!(judged(make(3, 1, &["a"])), "minAvailable");
        assert_eq!(judged(make(3, 2, &["b"])), "cliqueNames");
        assert_eq!(judged(make(3, 2, &[])), "cliqueNames cliqueNames");
        assert_eq!(show(&scale(1, 2)), "replicas");
        assert_eq!(show(&scale(2, 2)), "");
    }
}
