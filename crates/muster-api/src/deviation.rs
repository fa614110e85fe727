//! Where Muster's CRDs differ from upstream's on purpose.
//!
//! One list, read by the coverage report ([`crate::coverage`]) and by people. An entry that no longer matches
//! a difference is reported too, so that the list cannot rot.

/// One intended difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// Name of the CRD, or `*` and the end of the names that are meant: `*.volcano.sh`.
    pub crd: &'static str,
    /// Path in the form of the coverage report, or `*` and the end of the paths that are meant.
    pub path: &'static str,
    /// The keyword that differs, as the coverage report names it.
    pub what: &'static str,
    pub why: &'static str,
}

impl Deviation {
    pub fn covers(&self, crd: &str, path: &str, what: &str) -> bool {
        matches(self.crd, crd) && matches(self.path, path) && self.what == what
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => text.ends_with(end),
        None => pattern == text,
    }
}

pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        crd: "podcliquesets.grove.io",
        path: "v1alpha1 spec.template.cliques[].spec.roleName",
        what: "required",
        why: "the founding PodCliqueSets have no roleName; it defaults to the name of the clique",
    },
    Deviation {
        crd: "podcliques.grove.io",
        path: "v1alpha1 spec.roleName",
        what: "required",
        why: "a PodClique's spec is the spec of the template that it was made from",
    },
    Deviation {
        crd: "podcliquesets.grove.io",
        path: "v1alpha1 status.ready",
        what: "extra",
        why: "available and wanted replicas as one text, for the READY column: a JSON path cannot join two fields",
    },
    Deviation {
        crd: "podcliquesets.grove.io",
        path: "v1alpha1 column Ready",
        what: "extra",
        why: "`kubectl get pcs` shows at a glance how many replicas are available, as it does for pods",
    },
    Deviation {
        crd: "*.volcano.sh",
        path: "*policies[].event",
        what: "enum",
        why: "a fault tolerant job acts on NodeFailed and TaskStuck",
    },
    Deviation {
        crd: "*.volcano.sh",
        path: "*policies[].events[]",
        what: "enum",
        why: "a fault tolerant job acts on NodeFailed and TaskStuck",
    },
];
