//! The rules of topology constraints.
//!
//! A constraint names a topology or has the name of the level above it; all of a set name one. Domains are levels of that
//! topology, and a constraint inside another is never wider.

use super::{Findings, Known, World, quote};
use crate::object::{ClusterTopologyBinding, PodCliqueSet, TopologyConstraint};

/// A constraint, where it stands, and the constraints around it from the inside out.
struct Place<'a> {
    field: String,
    constraint: &'a TopologyConstraint,
    around: Vec<&'a TopologyConstraint>,
}

fn places(set: &PodCliqueSet) -> Vec<Place<'_>> {
    let template = &set.spec.template;
    let whole = template.topology_constraint.as_ref();
    let mut out = Vec::new();
    out.extend(whole.map(|constraint| Place {
        field: "spec.template.topologyConstraint".into(),
        constraint,
        around: Vec::new(),
    }));
    for (index, group) in template.pod_clique_scaling_groups.iter().enumerate() {
        out.extend(group.topology_constraint.as_ref().map(|constraint| Place {
            field: format!("spec.template.podCliqueScalingGroups[{index}].topologyConstraint"),
            constraint,
            around: whole.into_iter().collect(),
        }));
    }
    for (index, clique) in template.cliques.iter().enumerate() {
        let group = set.group_of(&clique.name).and_then(|group| group.topology_constraint.as_ref());
        out.extend(clique.topology_constraint.as_ref().map(|constraint| Place {
            field: format!("spec.template.cliques[{index}].topologyConstraint"),
            constraint,
            around: group.into_iter().chain(whole).collect(),
        }));
    }
    out
}

pub(super) fn judge(set: &PodCliqueSet, is_new: bool, world: &World<'_>, findings: &mut Findings) {
    let places = places(set);
    if places.is_empty() {
        return;
    }
    if !world.options.topology {
        for place in &places {
            findings.refuse(&place.field, "topology constraints are switched off in this cluster; remove it");
        }
        return;
    }
    let mut one: Option<&str> = None;
    for place in &places {
        shape(place, is_new, findings);
        let own = std::iter::once(place.constraint).chain(place.around.iter().copied());
        let name = own.map(|c| c.topology_name.as_str()).find(|name| !name.is_empty());
        match (name, one) {
            (None, _) => findings.refuse(
                format!("{}.topologyName", place.field),
                "is missing here and above; write the name of a ClusterTopologyBinding",
            ),
            (Some(name), None) => one = Some(name),
            (Some(name), Some(first)) if name != first => findings.refuse(
                format!("{}.topologyName", place.field),
                format!(
                    "is {}, and another constraint of this set says {}; write one",
                    quote(name),
                    quote(first)
                ),
            ),
            _ => {}
        }
    }
    let Some(name) = one else { return };
    match (world.binding)(name) {
        Known::Unknown => {}
        Known::Missing => findings.refuse(
            "spec.template.topologyConstraint.topologyName",
            format!("there is no ClusterTopologyBinding {}; make it first", quote(name)),
        ),
        Known::There(binding) => domains(&places, &binding, findings),
    }
}

/// What the CRD's own rules say too; said again for servers that do not evaluate them.
fn shape(place: &Place<'_>, is_new: bool, findings: &mut Findings) {
    let constraint = place.constraint;
    let field = |name: &str| format!("{}.{name}", place.field);
    match &constraint.pack {
        None if constraint.pack_domain.is_empty() => {
            findings.refuse(field("pack"), "is missing; write required or preferred inside it");
        }
        Some(pack) if pack.required.is_empty() && pack.preferred.is_empty() => {
            findings.refuse(field("pack"), "is empty; write required, preferred or both");
        }
        Some(pack) if !pack.required.is_empty() && !constraint.pack_domain.is_empty() => {
            findings.refuse(field("packDomain"), "cannot stand beside pack.required; keep pack.required");
        }
        _ => {}
    }
    if !constraint.pack_domain.is_empty() {
        if is_new {
            findings.refuse(field("packDomain"), "is deprecated; write pack.required");
        } else {
            findings.warn(field("packDomain"), "is deprecated; move it to pack.required");
        }
    }
}

fn domains(places: &[Place<'_>], binding: &ClusterTopologyBinding, findings: &mut Findings) {
    let rank = |domain: &str| binding.spec.levels.iter().position(|level| level.domain == domain);
    let known: Vec<&str> = binding.spec.levels.iter().map(|level| level.domain.as_str()).collect();
    let mut all_known = true;
    for place in places {
        let named = [("required", place.constraint.required()), ("preferred", place.constraint.preferred())];
        for (field, domain) in named.into_iter().filter(|(_, domain)| !domain.is_empty()) {
            if rank(domain).is_none() {
                all_known = false;
                findings.refuse(
                    format!("{}.pack.{field}", place.field),
                    format!(
                        "{} is no level of {}; write one of {}",
                        quote(domain),
                        binding.metadata.name,
                        known.join(", ")
                    ),
                );
            }
        }
    }
    if !all_known {
        return;
    }
    for place in places {
        let (required, preferred) = (rank(place.constraint.required()), rank(place.constraint.preferred()));
        if let (Some(required), Some(preferred)) = (required, preferred)
            && preferred < required
        {
            findings.warn(
                format!("{}.pack.preferred", place.field),
                "is wider than required, so it is always fulfilled; write a narrower one",
            );
        }
        for around in &place.around {
            let wider = |own: Option<usize>, above: Option<usize>| matches!((own, above), (Some(own), Some(above)) if own < above);
            if wider(required, rank(around.required())) {
                findings.refuse(
                    format!("{}.pack.required", place.field),
                    format!(
                        "{} is wider than {} around it",
                        quote(place.constraint.required()),
                        quote(around.required())
                    ),
                );
            }
            if wider(preferred, rank(around.preferred())) {
                findings.refuse(
                    format!("{}.pack.preferred", place.field),
                    format!(
                        "{} is wider than {} around it",
                        quote(place.constraint.preferred()),
                        quote(around.preferred())
                    ),
                );
            }
        }
    }
}

/// Constraints stay as they are, save that an old spelling may be made new.
pub(super) fn frozen(new: &PodCliqueSet, old: &PodCliqueSet, findings: &mut Findings) {
    let template = |set: &PodCliqueSet| set.spec.template.topology_constraint.clone();
    compare("spec.template.topologyConstraint", template(old).as_ref(), template(new).as_ref(), findings);
    for (index, group) in new.spec.template.pod_clique_scaling_groups.iter().enumerate() {
        let mut before = old.spec.template.pod_clique_scaling_groups.iter();
        if let Some(before) = before.find(|before| before.name == group.name) {
            let field = format!("spec.template.podCliqueScalingGroups[{index}].topologyConstraint");
            compare(
                &field,
                before.topology_constraint.as_ref(),
                group.topology_constraint.as_ref(),
                findings,
            );
        }
    }
    for (index, clique) in new.spec.template.cliques.iter().enumerate() {
        if let Some(before) = old.clique_template(&clique.name) {
            let field = format!("spec.template.cliques[{index}].topologyConstraint");
            compare(
                &field,
                before.topology_constraint.as_ref(),
                clique.topology_constraint.as_ref(),
                findings,
            );
        }
    }
}

fn compare(
    field: &str,
    old: Option<&TopologyConstraint>,
    new: Option<&TopologyConstraint>,
    findings: &mut Findings,
) {
    let is_fine = match (old, new) {
        (None, None) => true,
        (Some(old), Some(new)) => {
            let named = old.topology_name == new.topology_name
                || (old.topology_name.is_empty() && !old.pack_domain.is_empty());
            named && old.required() == new.required() && old.preferred() == new.preferred()
        }
        _ => false,
    };
    if !is_fine {
        findings.refuse(field, "cannot be changed; delete the set and make it anew");
    }
}
