//! The rules of shared claims.

use std::collections::BTreeSet;

use super::{Findings, quote};
use crate::object::{PodCliqueSet, Sharing, list};

pub(super) fn judge(set: &PodCliqueSet, findings: &mut Findings) {
    let template = &set.spec.template;
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (index, claim) in template.resource_claim_templates.iter().enumerate() {
        let field = |name: &str| format!("spec.template.resourceClaimTemplates[{index}].{name}");
        if claim.name.is_empty() {
            findings.refuse(field("name"), "is missing; name it, so that resourceSharing can refer to it");
        } else if !names.insert(&claim.name) {
            findings
                .refuse(field("name"), format!("{} is there twice; give each its own", quote(&claim.name)));
        }
        if list(&claim.template_spec, &["spec", "devices", "requests"]).is_empty() {
            findings.refuse(
                field("templateSpec.spec.devices.requests"),
                "is empty; a claim must request at least one device",
            );
        }
    }
    let cliques: BTreeSet<&str> = template.cliques.iter().map(|clique| clique.name.as_str()).collect();
    let groups: BTreeSet<&str> = template.pod_clique_scaling_groups.iter().map(|g| g.name.as_str()).collect();
    entries(
        &template.resource_sharing,
        "spec.template.resourceSharing",
        &names,
        &cliques,
        Some(&groups),
        findings,
    );
    for (index, clique) in template.cliques.iter().enumerate() {
        let field = format!("spec.template.cliques[{index}].resourceSharing");
        entries(&clique.resource_sharing, &field, &names, &BTreeSet::new(), None, findings);
    }
    for (index, group) in template.pod_clique_scaling_groups.iter().enumerate() {
        let field = format!("spec.template.podCliqueScalingGroups[{index}].resourceSharing");
        let own: BTreeSet<&str> = group.clique_names.iter().map(String::as_str).collect();
        entries(&group.resource_sharing, &field, &names, &own, None, findings);
    }
}

fn entries(
    sharing: &[Sharing],
    field: &str,
    templates: &BTreeSet<&str>,
    cliques: &BTreeSet<&str>,
    groups: Option<&BTreeSet<&str>>,
    findings: &mut Findings,
) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (index, entry) in sharing.iter().enumerate() {
        let field = |name: &str| format!("{field}[{index}].{name}");
        if entry.name.is_empty() {
            findings.refuse(field("name"), "is missing; write the name of a claim template");
        } else if !seen.insert(&entry.name) {
            findings.refuse(field("name"), format!("{} is there twice; keep one", quote(&entry.name)));
        }
        if templates.contains(entry.name.as_str()) && !entry.namespace.is_empty() {
            findings.refuse(field("namespace"), "must be left out: the template is the set's own");
        }
        if !matches!(entry.scope.as_str(), "AllReplicas" | "PerReplica") {
            let message = format!("{} is none; write AllReplicas or PerReplica", quote(&entry.scope));
            findings.refuse(field("scope"), message);
        }
        let Some(filter) = &entry.filter else { continue };
        if filter.child_clique_names.is_empty() && filter.child_scaling_group_names.is_empty() {
            findings.refuse(field("filter"), "is empty; name cliques or groups, or leave it out for all");
        }
        for name in filter.child_clique_names.iter().filter(|name| !cliques.contains(name.as_str())) {
            findings
                .refuse(field("filter.childCliqueNames"), format!("there is no clique {} here", quote(name)));
        }
        for name in &filter.child_scaling_group_names {
            if groups.is_none_or(|groups| !groups.contains(name.as_str())) {
                let message = format!("there is no scaling group {} here", quote(name));
                findings.refuse(field("filter.childScalingGroupNames"), message);
            }
        }
    }
}
