//! Who may do what, and what is let in: rbac, admission registration, certificates, flow control and custom resource
//! definitions.

use std::fmt::Write as _;

use super::read::{Object, count};
use super::{AGE, CREATED_AT, Known, NAME, Spec, integer, name_and_creation, text, wide};
use crate::{Cell, human_duration};

const BINDING_COLUMNS: &[Spec] =
    &[NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")];
const POLICY_BINDING_COLUMNS: &[Spec] = &[NAME, text("PolicyName"), text("ParamRef"), AGE];
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

pub(super) const KINDS: &[Known] = &[
    Known { group: RBAC, kind: "Role", columns: &[NAME, CREATED_AT], cells: name_and_creation },
    Known { group: RBAC, kind: "ClusterRole", columns: &[NAME, CREATED_AT], cells: name_and_creation },
    Known { group: RBAC, kind: "RoleBinding", columns: BINDING_COLUMNS, cells: role_binding },
    Known { group: RBAC, kind: "ClusterRoleBinding", columns: BINDING_COLUMNS, cells: role_binding },
    Known {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        columns: &[NAME, CREATED_AT],
        cells: name_and_creation,
    },
    Known {
        group: ADMISSION,
        kind: "MutatingWebhookConfiguration",
        columns: &[NAME, integer("Webhooks"), AGE],
        cells: webhooks,
    },
    Known {
        group: ADMISSION,
        kind: "ValidatingWebhookConfiguration",
        columns: &[NAME, integer("Webhooks"), AGE],
        cells: webhooks,
    },
    Known {
        group: ADMISSION,
        kind: "ValidatingAdmissionPolicy",
        columns: &[NAME, integer("Validations"), text("ParamKind"), AGE],
        cells: |object| policy(object, "spec.validations"),
    },
    Known {
        group: ADMISSION,
        kind: "MutatingAdmissionPolicy",
        columns: &[NAME, integer("Mutations"), text("ParamKind"), AGE],
        cells: |object| policy(object, "spec.mutations"),
    },
    Known {
        group: ADMISSION,
        kind: "ValidatingAdmissionPolicyBinding",
        columns: POLICY_BINDING_COLUMNS,
        cells: policy_binding,
    },
    Known {
        group: ADMISSION,
        kind: "MutatingAdmissionPolicyBinding",
        columns: POLICY_BINDING_COLUMNS,
        cells: policy_binding,
    },
    Known {
        group: "certificates.k8s.io",
        kind: "CertificateSigningRequest",
        columns: &[
            NAME,
            AGE,
            text("SignerName"),
            text("Requestor"),
            text("RequestedDuration"),
            text("Condition"),
        ],
        cells: certificate_signing_request,
    },
    Known {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "FlowSchema",
        columns: &[
            NAME,
            text("PriorityLevel"),
            text("MatchingPrecedence"),
            text("DistinguisherMethod"),
            AGE,
            text("MissingPL"),
        ],
        cells: flow_schema,
    },
    Known {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "PriorityLevelConfiguration",
        columns: &[
            NAME,
            text("Type"),
            text("NominalConcurrencyShares"),
            text("Queues"),
            text("HandSize"),
            text("QueueLengthLimit"),
            AGE,
        ],
        cells: priority_level,
    },
];

fn role_binding(object: Object<'_>) -> Vec<Cell> {
    let of_kind = |kind: &str| {
        let named = |subject: Object<'_>| match kind {
            "ServiceAccount" => format!("{}/{}", subject.text("namespace"), subject.text("name")),
            _ => subject.text("name").to_owned(),
        };
        let subjects = object.list("subjects").filter(|subject| subject.text("kind") == kind);
        Cell::from(subjects.map(named).collect::<Vec<_>>().join(", "))
    };
    vec![
        object.name(),
        format!("{}/{}", object.text("roleRef.kind"), object.text("roleRef.name")).into(),
        object.age(),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}

fn webhooks(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.count_cell("webhooks"), object.age()]
}

fn policy(object: Object<'_>, rules: &str) -> Vec<Cell> {
    let param_kind = match object.get("spec.paramKind") {
        Some(_) => {
            format!("{}/{}", object.text("spec.paramKind.apiVersion"), object.text("spec.paramKind.kind"))
        }
        None => "<unset>".into(),
    };
    vec![object.name(), count(object.list(rules).len()), param_kind.into(), object.age()]
}

fn policy_binding(object: Object<'_>) -> Vec<Cell> {
    let name = object.text("spec.paramRef.name");
    let selector = object.get("spec.paramRef.selector").map(|value| Object { value, now: object.now });
    let param_ref = match (name, selector) {
        ("", None) => "<unset>".to_owned(),
        ("", Some(selector)) => selector_dump(selector),
        (name, _) => format!("{}/{name}", object.text_or("spec.paramRef.namespace", "*")),
    };
    vec![object.name(), object.cell("spec.policyName"), param_ref.into(), object.age()]
}

/// A label selector in the debug format of the server, which is what it shows here.
fn selector_dump(selector: Object<'_>) -> String {
    let mut labels: Vec<_> = selector.map("matchLabels").into_iter().flatten().collect();
    labels.sort_unstable_by_key(|(key, _)| key.as_str());
    let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in labels {
        // Writing to a string does not fail.
        let _ = write!(text, "{key}: {},", value.as_str().unwrap_or_default());
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for expression in selector.list("matchExpressions") {
        let _ = write!(
            text,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
            expression.text("key"),
            expression.text("operator"),
            expression.texts("values").join(" "),
        );
    }
    text.push_str("},}");
    text
}

fn certificate_signing_request(object: Object<'_>) -> Vec<Cell> {
    let has = |type_: &str| object.list("status.conditions").any(|condition| condition.text("type") == type_);
    let mut condition = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !object.text("status.certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let duration = object.integer_if_set("spec.expirationSeconds").map_or_else(
        || "<none>".to_owned(),
        |seconds| human_duration(jiff::SignedDuration::from_secs(seconds)),
    );
    vec![
        object.name(),
        object.age(),
        object.text_or("spec.signerName", "<none>").into(),
        object.cell("spec.username"),
        duration.into(),
        condition.into(),
    ]
}

fn flow_schema(object: Object<'_>) -> Vec<Cell> {
    let method = match object.get("spec.distinguisherMethod") {
        Some(_) => object.text("spec.distinguisherMethod.type"),
        None => "<none>",
    };
    let dangling = object.list("status.conditions").find(|condition| condition.text("type") == "Dangling");
    vec![
        object.name(),
        object.cell("spec.priorityLevelConfiguration.name"),
        object.integer_if_set("spec.matchingPrecedence").unwrap_or(1000).into(),
        method.into(),
        object.age(),
        dangling.map_or("?", |condition| condition.text("status")).into(),
    ]
}

fn priority_level(object: Object<'_>) -> Vec<Cell> {
    let number = |path: &str, default: i64| object.integer_if_set(path).unwrap_or(default).into();
    let none = || Cell::from("<none>");
    let is_limited = object.has("spec.limited");
    let queues = object.has("spec.limited.limitResponse.queuing");
    let queuing = |path: &str, default: i64| if queues { number(path, default) } else { none() };
    vec![
        object.name(),
        object.cell("spec.type"),
        if is_limited { number("spec.limited.nominalConcurrencyShares", 30) } else { none() },
        queuing("spec.limited.limitResponse.queuing.queues", 64),
        queuing("spec.limited.limitResponse.queuing.handSize", 8),
        queuing("spec.limited.limitResponse.queuing.queueLengthLimit", 50),
        object.age(),
    ]
}
