//! The rules of PodCliqueSets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::words::{annotations, is_label, is_subdomain, is_variable, labels};
use super::{Findings, World, constraint, quote, sharing};
use crate::backend::volcano;
use crate::duration;
use crate::keys::{self, kai};
use crate::object::{CliqueTemplate, GroupConfig, PodCliqueSet, Scaling, list, text};
use crate::settings::BackendName;

/// Names of set, group and clique together: what is left holds the indexes and the suffix of a pod's name.
const MOST_LETTERS: usize = 45;

/// Judges a new set; `object` has its defaults.
pub fn create(object: &Value, world: &World<'_>) -> Findings {
    match read(object) {
        Ok(set) => judge(&set, true, world),
        Err(findings) => findings,
    }
}

/// Judges a change; both objects have their defaults.
pub fn update(object: &Value, old: &Value, world: &World<'_>) -> Findings {
    let is_going = object
        .get("metadata")
        .is_some_and(|meta| meta.get("deletionTimestamp").is_some_and(|t| !t.is_null()));
    let annotation = |object: &Value| {
        object
            .get("metadata")
            .and_then(|m| m.get("annotations"))
            .and_then(|a| a.get(keys::MNNVL_GROUP))
            .cloned()
    };
    if is_going || (object.get("spec") == old.get("spec") && annotation(object) == annotation(old)) {
        return Findings::default();
    }
    let (new, old) = match (read(object), read(old)) {
        (Ok(new), Ok(old)) => (new, old),
        (Err(findings), _) => return findings,
        // What cannot be read anyway may become anything.
        (Ok(new), Err(_)) => return judge(&new, false, world),
    };
    let mut findings = judge(&new, false, world).since(&judge(&old, false, world));
    frozen(&new, &old, world, &mut findings);
    findings
}

fn read(object: &Value) -> Result<PodCliqueSet, Findings> {
    serde_json::from_value(object.clone()).map_err(|error| {
        let mut findings = Findings::default();
        findings.refuse("spec", format!("cannot be read: {error}"));
        findings
    })
}

fn judge(set: &PodCliqueSet, is_new: bool, world: &World<'_>) -> Findings {
    let mut findings = Findings::default();
    let template = &set.spec.template;
    let name = &set.metadata.name;
    let is_name = is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase());
    // A name that the server makes up is not there yet.
    if !is_name && !name.is_empty() {
        let message = format!(
            "{} cannot be the beginning of service and host names; write small letters, digits and -, a letter first",
            quote(name)
        );
        findings.refuse("metadata.name", message);
    }
    if set.spec.replicas.is_some_and(|replicas| replicas < 0) {
        findings.refuse("spec.replicas", "must not be negative; write 0 to stop the set");
    }
    if template.cliques.is_empty() {
        findings.refuse("spec.template.cliques", "is empty; write at least one clique");
    }
    if !template.termination_delay.is_empty()
        && duration::parse(&template.termination_delay).is_none_or(|delay| delay.is_zero())
    {
        findings.refuse("spec.template.terminationDelay", "must be a duration above zero, such as 4h or 10m");
    }
    cliques(set, is_new, &mut findings);
    groups(set, &mut findings);
    order(set, &mut findings);
    schedulers(set, world, &mut findings);
    lengths(set, &mut findings);
    collisions(set, &mut findings);
    sharing::judge(set, &mut findings);
    constraint::judge(set, is_new, world, &mut findings);
    domains(set, is_new, world, &mut findings);
    findings
}

fn clique_field(index: usize, name: &str) -> String {
    format!("spec.template.cliques[{index}].{name}")
}

fn group_field(index: usize, name: &str) -> String {
    format!("spec.template.podCliqueScalingGroups[{index}].{name}")
}

fn role(clique: &CliqueTemplate) -> &str {
    if clique.spec.role_name.is_empty() { &clique.name } else { &clique.spec.role_name }
}

fn cliques(set: &PodCliqueSet, is_new: bool, findings: &mut Findings) {
    let (mut names, mut roles) = (BTreeMap::new(), BTreeMap::new());
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let field = |name: &str| clique_field(index, name);
        let spec = &clique.spec;
        if !is_label(&clique.name) {
            let message = format!("{} is no name; write small letters, digits and -", quote(&clique.name));
            findings.refuse(field("name"), message);
        }
        if let Some(first) = names.insert(clique.name.as_str(), index) {
            let message =
                format!("{} is the name of clique {first} too; give each its own", quote(&clique.name));
            findings.refuse(field("name"), message);
        }
        if let Some(first) = roles.insert(role(clique), index) {
            let message =
                format!("{} is the role of clique {first} too; give each its own", quote(role(clique)));
            findings.refuse(field("spec.roleName"), message);
        }
        labels(&field("labels"), &clique.labels, findings);
        annotations(&field("annotations"), &clique.annotations, findings);
        if spec.replicas <= 0 {
            findings.refuse(field("spec.replicas"), "must be at least 1");
        }
        match spec.min_available {
            Some(min) if min < 1 => findings.refuse(field("spec.minAvailable"), "must be at least 1"),
            Some(min) if min > spec.replicas => findings.refuse(
                field("spec.minAvailable"),
                format!("is {min}, more than the {} replicas; write at most as many", spec.replicas),
            ),
            _ => {}
        }
        if let Some(scaling) = &spec.auto_scaling_config {
            let field = |name: &str| field(&format!("spec.autoScalingConfig.{name}"));
            if set.group_of(&clique.name).is_some() {
                findings.refuse(
                    clique_field(index, "spec.autoScalingConfig"),
                    "a clique of a scaling group scales with its group; write scaleConfig of the group",
                );
            }
            let limits = Limits { min_available: spec.min_available(), replicas: spec.replicas };
            judge_scaling(scaling, &limits, &field, findings);
        }
        pods(&spec.pod_spec, is_new, &|name| field(&format!("spec.podSpec.{name}")), findings);
    }
}

struct Limits {
    min_available: i64,
    replicas: i64,
}

fn judge_scaling(
    scaling: &Scaling,
    limits: &Limits,
    field: &dyn Fn(&str) -> String,
    findings: &mut Findings,
) {
    let least = scaling.min_replicas.unwrap_or(limits.replicas);
    if least < limits.min_available {
        let message = format!("is {least}, below minAvailable {}; write at least that", limits.min_available);
        findings.refuse(field("minReplicas"), message);
    }
    if scaling.max_replicas < least {
        let message = format!("is {}, below minReplicas {least}; write at least that", scaling.max_replicas);
        findings.refuse(field("maxReplicas"), message);
    } else if scaling.max_replicas < limits.replicas {
        let message =
            format!("is {}, below replicas {}; write at least that", scaling.max_replicas, limits.replicas);
        findings.refuse(field("maxReplicas"), message);
    }
}

fn pods(spec: &Value, is_new: bool, field: &dyn Fn(&str) -> String, findings: &mut Findings) {
    if is_new {
        if !list(spec, &["topologySpreadConstraints"]).is_empty() {
            findings.refuse(
                field("topologySpreadConstraints"),
                "would part the gang; write topologyConstraint instead",
            );
        }
        if !text(spec, &["nodeName"]).is_empty() {
            findings.refuse(field("nodeName"), "passes the scheduler by; write nodeSelector instead");
        }
    }
    for kind in ["containers", "initContainers"] {
        for (index, container) in list(spec, &[kind]).iter().enumerate() {
            let mut seen: BTreeSet<&str> = BTreeSet::new();
            for (at, variable) in list(container, &["env"]).iter().enumerate() {
                let name = text(variable, &["name"]);
                let field = || field(&format!("{kind}[{index}].env[{at}].name"));
                if !is_variable(name) {
                    findings.refuse(field(), format!("{} is no name of a variable", quote(name)));
                } else if !seen.insert(name) {
                    findings.refuse(field(), format!("{} is there twice; keep one", quote(name)));
                }
            }
        }
    }
}

fn groups(set: &PodCliqueSet, findings: &mut Findings) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut members: BTreeMap<&str, &str> = BTreeMap::new();
    for (index, group) in set.spec.template.pod_clique_scaling_groups.iter().enumerate() {
        let field = |name: &str| group_field(index, name);
        if !is_label(&group.name) {
            let message = format!("{} is no name; write small letters, digits and -", quote(&group.name));
            findings.refuse(field("name"), message);
        }
        if let Some(first) = names.insert(&group.name, index) {
            let message =
                format!("{} is the name of group {first} too; give each its own", quote(&group.name));
            findings.refuse(field("name"), message);
        }
        annotations(&field("annotations"), &group.annotations, findings);
        if group.clique_names.is_empty() {
            findings.refuse(field("cliqueNames"), "is empty; name the cliques that scale together");
        }
        let mut own: BTreeSet<&str> = BTreeSet::new();
        for clique in &group.clique_names {
            if set.clique_template(clique).is_none() {
                findings.refuse(field("cliqueNames"), format!("there is no clique {}", quote(clique)));
            }
            if !own.insert(clique) {
                findings.refuse(field("cliqueNames"), format!("{} is there twice; keep one", quote(clique)));
            } else if let Some(other) = members.insert(clique, &group.name) {
                let message = format!(
                    "{} is in group {} already; a clique is in one at most",
                    quote(clique),
                    quote(other)
                );
                findings.refuse(field("cliqueNames"), message);
            }
        }
        let replicas = group.replicas.unwrap_or(1);
        let min = group.min_available.unwrap_or(1);
        if replicas < 1 {
            findings.refuse(field("replicas"), "must be at least 1");
        }
        if min < 1 {
            findings.refuse(field("minAvailable"), "must be at least 1");
        } else if min > replicas {
            let message = format!("is {min}, more than the {replicas} replicas; write at most as many");
            findings.refuse(field("minAvailable"), message);
        }
        if let Some(scaling) = &group.scale_config {
            let field = |name: &str| field(&format!("scaleConfig.{name}"));
            // The most is compared with the least only: today's Grove lets a group start with more.
            let least = scaling.min_replicas.unwrap_or(replicas);
            let limits = Limits { min_available: min, replicas: least };
            judge_scaling(scaling, &limits, &field, findings);
        }
    }
}

/// Explicit order: known names, no circles.
fn order(set: &PodCliqueSet, findings: &mut Findings) {
    let template = &set.spec.template;
    let is_explicit = template.clique_startup_type == "CliqueStartupTypeExplicit";
    let mut after: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (index, clique) in template.cliques.iter().enumerate() {
        if clique.spec.starts_after.is_empty() {
            continue;
        }
        let field = || clique_field(index, "spec.startsAfter");
        if !is_explicit {
            findings.warn(field(), "means nothing unless cliqueStartupType is CliqueStartupTypeExplicit");
            continue;
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for parent in &clique.spec.starts_after {
            if parent.is_empty() {
                findings.refuse(field(), "has an empty name; remove it");
            } else if *parent == clique.name {
                findings.refuse(field(), "names the clique itself; remove it");
            } else if !seen.insert(parent) {
                findings.refuse(field(), format!("{} is there twice; keep one", quote(parent)));
            } else if set.clique_template(parent).is_none() {
                findings.refuse(field(), format!("there is no clique {}", quote(parent)));
            }
        }
        after.insert(&clique.name, seen.into_iter().collect());
    }
    if let Some(circle) = circle(&after) {
        let index =
            template.cliques.iter().position(|c| circle.first() == Some(&c.name.as_str())).unwrap_or(0);
        let message = format!("nobody could start first: {}; remove one of these", circle.join(" after "));
        findings.refuse(clique_field(index, "spec.startsAfter"), message);
    }
}

/// A circle of names, if there is one; the first stands at the end too. Every edge is walked once.
fn circle<'a>(after: &BTreeMap<&'a str, Vec<&'a str>>) -> Option<Vec<&'a str>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Open,
        Done,
    }
    let mut marks: BTreeMap<&str, Mark> = BTreeMap::new();
    for start in after.keys().copied() {
        if marks.contains_key(start) {
            continue;
        }
        // The way so far, each with the next of its parents to look at.
        let mut way: Vec<(&'a str, usize)> = vec![(start, 0)];
        marks.insert(start, Mark::Open);
        while let Some((name, next)) = way.last_mut() {
            let parent = after.get(name).and_then(|parents| parents.get(*next)).copied();
            *next += 1;
            match parent {
                None => {
                    marks.insert(*name, Mark::Done);
                    way.pop();
                }
                Some(parent) => match marks.get(parent) {
                    Some(Mark::Open) => {
                        let from = way.iter().position(|(name, _)| *name == parent).unwrap_or(0);
                        let mut circle: Vec<&str> = way.iter().skip(from).map(|(name, _)| *name).collect();
                        circle.push(parent);
                        return Some(circle);
                    }
                    Some(Mark::Done) => {}
                    None => {
                        marks.insert(parent, Mark::Open);
                        way.push((parent, 0));
                    }
                },
            }
        }
    }
    None
}

fn schedulers(set: &PodCliqueSet, world: &World<'_>, findings: &mut Findings) {
    let options = world.options;
    let mut first: Option<&str> = None;
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let name = text(&clique.spec.pod_spec, &["schedulerName"]);
        if name.is_empty() {
            continue;
        }
        match first {
            None => first = Some(name),
            Some(first) if first == name => {}
            Some(first) => findings.refuse(
                clique_field(index, "spec.podSpec.schedulerName"),
                format!(
                    "is {}, and another clique says {}; one set has one scheduler",
                    quote(name),
                    quote(first)
                ),
            ),
        }
    }
    let backend = set.backend(options);
    if !options.enabled.contains(&backend) {
        let enabled: Vec<&str> = options.enabled.iter().map(|backend| backend.as_str()).collect();
        findings.refuse(
            clique_field(0, "spec.podSpec.schedulerName"),
            format!("needs backend {backend}, which is not enabled; enabled are {}", enabled.join(", ")),
        );
    }
    let template = &set.spec.template;
    if template.priority_class_name.is_empty() && set.priority_class().is_empty() {
        let classes: BTreeSet<&str> =
            template.cliques.iter().map(|c| text(&c.spec.pod_spec, &["priorityClassName"])).collect();
        if classes.len() > 1 {
            findings.warn(
                "spec.template.priorityClassName",
                "is missing, and the cliques say different classes: the gang has none. Write one",
            );
        }
    }
    match backend {
        BackendName::Kai => queue(set, kai::QUEUE, findings),
        BackendName::Volcano => queue(set, volcano::QUEUE, findings),
        _ => {}
    }
}

/// All that is said of the queue says one.
fn queue(set: &PodCliqueSet, key: &str, findings: &mut Findings) {
    let of_set = set.metadata.labels.get(key).or_else(|| set.metadata.annotations.get(key));
    let mut one = of_set.map(|queue| queue.trim()).filter(|queue| !queue.is_empty());
    if let Some(queue) = one
        && !is_subdomain(queue)
    {
        findings.refuse(
            format!("metadata.annotations[{key}]"),
            format!("{} is no name of a queue", quote(queue)),
        );
    }
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let said = clique.labels.get(key).or_else(|| clique.annotations.get(key)).map(|queue| queue.trim());
        let Some(said) = said.filter(|said| !said.is_empty()) else { continue };
        match one {
            None => one = Some(said),
            Some(first) if first == said => {}
            Some(first) => findings.refuse(
                clique_field(index, &format!("labels[{key}]")),
                format!("is {}, and elsewhere it is {}; one set has one queue", quote(said), quote(first)),
            ),
        }
    }
}

fn lengths(set: &PodCliqueSet, findings: &mut Findings) {
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        let group = set.group_of(&clique.name).map_or(0, |group| group.name.len());
        let n_letters = set.metadata.name.len() + group + clique.name.len();
        if n_letters > MOST_LETTERS {
            findings.refuse(
                clique_field(index, "name"),
                format!(
                    "names of set, group and clique have {n_letters} letters, {MOST_LETTERS} fit into a host name; \
                     shorten one"
                ),
            );
        }
    }
}

/// Names that would meet once indexes are put between them.
fn collisions(set: &PodCliqueSet, findings: &mut Findings) {
    let template = &set.spec.template;
    for (index, clique) in template.cliques.iter().enumerate() {
        if set.group_of(&clique.name).is_some() {
            continue;
        }
        for group in &template.pod_clique_scaling_groups {
            let rest = clique.name.strip_prefix(&group.name).and_then(|rest| rest.strip_prefix('-'));
            let Some((number, member)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
            let is_index = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            if is_index && group.clique_names.iter().any(|name| name == member) {
                findings.refuse(
                    clique_field(index, "name"),
                    format!(
                        "{} is also what clique {} of group {} is called; rename it",
                        quote(&clique.name),
                        quote(member),
                        quote(&group.name)
                    ),
                );
            }
        }
        let twin = template.pod_clique_scaling_groups.iter().find(|group| group.name == clique.name);
        if clique.spec.auto_scaling_config.is_some() && twin.is_some_and(|group| group.scale_config.is_some())
        {
            findings.refuse(
                clique_field(index, "name"),
                format!(
                    "{} is also a scaling group, and both would have one autoscaler; rename it",
                    quote(&clique.name)
                ),
            );
        }
    }
}

/// Compute domain groups.
fn domains(set: &PodCliqueSet, is_new: bool, world: &World<'_>, findings: &mut Findings) {
    let field = |place: &str| format!("{place}[{}]", keys::MNNVL_GROUP);
    let mut judge = |place: String, group: Option<&String>| {
        let Some(group) = group.filter(|group| *group != keys::MNNVL_NONE) else { return };
        if !is_label(group) {
            let message = format!("{} is no name; write small letters, digits and -, or none", quote(group));
            findings.refuse(field(&place), message);
        } else if is_new && !world.options.mnnvl {
            findings.refuse(
                field(&place),
                "compute domains are switched off in this cluster; remove it, or write none",
            );
        }
    };
    judge("metadata.annotations".into(), set.metadata.annotations.get(keys::MNNVL_GROUP));
    for (index, group) in set.spec.template.pod_clique_scaling_groups.iter().enumerate() {
        judge(group_field(index, "annotations"), group.annotations.get(keys::MNNVL_GROUP));
    }
    for (index, clique) in set.spec.template.cliques.iter().enumerate() {
        judge(clique_field(index, "annotations"), clique.annotations.get(keys::MNNVL_GROUP));
    }
}

const FROZEN: &str = "cannot be changed; delete the set and make it anew";

/// What cannot be changed.
fn frozen(new: &PodCliqueSet, old: &PodCliqueSet, world: &World<'_>, findings: &mut Findings) {
    let (now, before) = (&new.spec.template, &old.spec.template);
    let startup =
        |kind: &str| if kind.is_empty() { "CliqueStartupTypeAnyOrder".to_owned() } else { kind.to_owned() };
    if startup(&now.clique_startup_type) != startup(&before.clique_startup_type) {
        findings.refuse("spec.template.cliqueStartupType", FROZEN);
    }
    if new.metadata.annotations.get(keys::MNNVL_GROUP) != old.metadata.annotations.get(keys::MNNVL_GROUP) {
        findings.refuse(format!("metadata.annotations[{}]", keys::MNNVL_GROUP), FROZEN);
    }
    let names = |cliques: &[CliqueTemplate]| cliques.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    let (names_now, names_before) = (names(&now.cliques), names(&before.cliques));
    let as_set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
    if as_set(&names_now) != as_set(&names_before) {
        findings.refuse(
            "spec.template.cliques",
            "cliques cannot be added, removed or renamed; delete the set and make it anew",
        );
    } else if names_now != names_before && startup(&now.clique_startup_type) != "CliqueStartupTypeAnyOrder" {
        findings.refuse("spec.template.cliques", "cannot change their order, since they start by it");
    }
    for (index, clique) in now.cliques.iter().enumerate() {
        let Some(past) = old.clique_template(&clique.name) else { continue };
        let mut freeze = |name: &str, same: bool| {
            if !same {
                findings.refuse(clique_field(index, name), FROZEN);
            }
        };
        freeze("spec.roleName", role(clique) == role(past));
        freeze("spec.minAvailable", clique.spec.min_available() == past.spec.min_available());
        freeze("spec.startsAfter", clique.spec.starts_after == past.spec.starts_after);
        freeze("resourceSharing", clique.resource_sharing == past.resource_sharing);
        freeze(
            &format!("annotations[{}]", keys::MNNVL_GROUP),
            clique.annotations.get(keys::MNNVL_GROUP) == past.annotations.get(keys::MNNVL_GROUP),
        );
        let scheduler = |clique: &CliqueTemplate| text(&clique.spec.pod_spec, &["schedulerName"]).to_owned();
        let same = scheduler(clique) == scheduler(past)
            // What was not said may be said, if it says the same.
            || world.options.pod_scheduler(&scheduler(clique)) == world.options.pod_scheduler(&scheduler(past));
        freeze("spec.podSpec.schedulerName", same);
    }
    let mut past: BTreeMap<&str, &GroupConfig> =
        before.pod_clique_scaling_groups.iter().map(|group| (group.name.as_str(), group)).collect();
    for (index, group) in now.pod_clique_scaling_groups.iter().enumerate() {
        let Some(past) = past.remove(group.name.as_str()) else {
            findings.refuse(
                group_field(index, "name"),
                "scaling groups cannot be added; delete the set and make it anew",
            );
            continue;
        };
        let mut freeze = |name: &str, same: bool| {
            if !same {
                findings.refuse(group_field(index, name), FROZEN);
            }
        };
        freeze("cliqueNames", group.clique_names == past.clique_names);
        freeze("minAvailable", group.min_available() == past.min_available());
        freeze("resourceSharing", group.resource_sharing == past.resource_sharing);
        freeze(
            &format!("annotations[{}]", keys::MNNVL_GROUP),
            group.annotations.get(keys::MNNVL_GROUP) == past.annotations.get(keys::MNNVL_GROUP),
        );
    }
    for gone in past.keys() {
        let message =
            format!("scaling group {} cannot be removed; delete the set and make it anew", quote(gone));
        findings.refuse("spec.template.podCliqueScalingGroups", message);
    }
    if now.resource_claim_templates != before.resource_claim_templates {
        findings.refuse("spec.template.resourceClaimTemplates", FROZEN);
    }
    if now.resource_sharing != before.resource_sharing {
        findings.refuse("spec.template.resourceSharing", FROZEN);
    }
    constraint::frozen(new, old, findings);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Known;
    use super::*;
    use crate::defaults;
    use crate::levels::tests::binding;
    use crate::settings::Options;
    use crate::shape::tests::set_json;

    const SET: &str = "p x1; a 2/1; b 1/1; c 1/1; sg x2/1: b c";

    fn with_world<T>(options: &Options, look: impl FnOnce(&World<'_>) -> T) -> T {
        let find = |name: &str| match name {
            "dc" => Known::There(binding()),
            _ => Known::Missing,
        };
        look(&World { options, binding: &find })
    }

    fn show(findings: &Findings) -> String {
        let short = |field: &str| {
            let inner = field.strip_prefix("spec.").unwrap_or(field);
            let inner = inner.strip_prefix("template.").unwrap_or(inner);
            inner.replace("podCliqueScalingGroups", "groups")
        };
        let errors = findings.errors.iter().map(|error| format!("E {}", short(&error.field)));
        let warnings =
            findings.warnings.iter().map(|text| format!("W {}", short(text.split(": ").next().unwrap())));
        errors.chain(warnings).collect::<Vec<_>>().join(", ")
    }

    fn changed(path: &str, value: Value) -> Value {
        let mut object = set_json(SET);
        if path.is_empty() {
            return object;
        }
        let mut at = match path.strip_prefix('/') {
            Some(_) => &mut object,
            None => &mut object["spec"]["template"],
        };
        for step in path.trim_start_matches('/').split('/') {
            at = match step.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[step],
            };
        }
        *at = value;
        object
    }

    #[track_caller]
    fn check_with(options: &Options, path: &str, value: Value, expected: &str) {
        let mut object = changed(path, value.clone());
        defaults::set(&mut object);
        let findings = with_world(options, |world| create(&object, world));
        assert_eq!(show(&findings), expected, "{path} {value}: {findings:?}");
    }

    #[track_caller]
    fn check(path: &str, value: Value, expected: &str) {
        check_with(&Options::default(), path, value, expected);
    }

    #[test]
    fn a_good_set() {
        check("", Value::Null, "");
    }

    #[test]
    fn names() {
        check("/metadata/name", json!("a.b"), "E metadata.name");
        check("/metadata/name", json!("1a"), "E metadata.name");
        check("cliques/0/name", json!("A"), "E cliques[0].name");
        check("cliques/0/name", json!("x.y"), "E cliques[0].name");
        check("cliques/0/name", json!("b"), "E cliques[1].name");
        check("cliques/0/spec/roleName", json!("b"), "E cliques[1].spec.roleName");
        check("podCliqueScalingGroups/0/name", json!(""), "E groups[0].name");
        check("/metadata/name", json!("a".repeat(43)), "E cliques[1].name, E cliques[2].name");
        check("/metadata/name", json!("a".repeat(42)), "");
        check(
            "/metadata/name",
            json!("a".repeat(45)),
            "E cliques[0].name, E cliques[1].name, E cliques[2].name",
        );
        check("cliques/0/name", json!("sg-0-b"), "E cliques[0].name");
        check("cliques/0/name", json!("sg-x-b"), "");
        check("cliques/0/labels", json!({"a b": "c"}), "E cliques[0].labels[a b]");
        check("cliques/0/annotations", json!({"": "c"}), "E cliques[0].annotations[]");
    }

    #[test]
    fn counts() {
        check("/spec/replicas", json!(-1), "E replicas");
        check("cliques", json!([]), "E cliques, E groups[0].cliqueNames, E groups[0].cliqueNames");
        check("cliques/0/spec/replicas", json!(0), "");
        check(
            "cliques/0/spec/replicas",
            json!(-1),
            "E cliques[0].spec.replicas, E cliques[0].spec.minAvailable",
        );
        check("cliques/0/spec/minAvailable", json!(0), "E cliques[0].spec.minAvailable");
        check("cliques/0/spec/minAvailable", json!(3), "E cliques[0].spec.minAvailable");
        check(
            "podCliqueScalingGroups/0/replicas",
            json!(0),
            "E groups[0].replicas, E groups[0].minAvailable",
        );
        check("podCliqueScalingGroups/0/minAvailable", json!(3), "E groups[0].minAvailable");
        check("podCliqueScalingGroups/0/minAvailable", json!(0), "E groups[0].minAvailable");
        check("terminationDelay", json!("0s"), "E terminationDelay");
        check("terminationDelay", json!("never"), "E terminationDelay");
        check("terminationDelay", json!("10m"), "");
    }

    #[test]
    fn scaling() {
        let config = |min: i64, max: i64| json!({"minReplicas": min, "maxReplicas": max});
        let at = "cliques/0/spec/autoScalingConfig";
        check(at, config(1, 5), "");
        check(at, json!({"maxReplicas": 5}), "");
        check(at, config(0, 5), "E cliques[0].spec.autoScalingConfig.minReplicas");
        check(at, config(3, 2), "E cliques[0].spec.autoScalingConfig.maxReplicas");
        check(at, config(1, 1), "E cliques[0].spec.autoScalingConfig.maxReplicas");
        check("cliques/1/spec/autoScalingConfig", config(1, 5), "E cliques[1].spec.autoScalingConfig");
        let at = "podCliqueScalingGroups/0/scaleConfig";
        check(at, config(1, 5), "");
        check(at, config(0, 5), "E groups[0].scaleConfig.minReplicas");
        check(at, config(1, 1), "");
        check(at, config(3, 2), "E groups[0].scaleConfig.maxReplicas");
    }

    #[test]
    fn members_of_groups() {
        check("podCliqueScalingGroups/0/cliqueNames", json!([]), "E groups[0].cliqueNames");
        check("podCliqueScalingGroups/0/cliqueNames", json!(["x"]), "E groups[0].cliqueNames");
        check("podCliqueScalingGroups/0/cliqueNames", json!(["b", "b"]), "E groups[0].cliqueNames");
        let two = json!([{"name": "g", "cliqueNames": ["b"]}, {"name": "h", "cliqueNames": ["b"]}]);
        check("podCliqueScalingGroups", two, "E groups[1].cliqueNames");
        let twins = json!([{"name": "g", "cliqueNames": ["b"]}, {"name": "g", "cliqueNames": ["c"]}]);
        check("podCliqueScalingGroups", twins, "E groups[1].name");
    }

    #[test]
    fn pods() {
        check("cliques/0/spec/podSpec/nodeName", json!("n"), "E cliques[0].spec.podSpec.nodeName");
        check(
            "cliques/0/spec/podSpec/topologySpreadConstraints",
            json!([{}]),
            "E cliques[0].spec.podSpec.topologySpreadConstraints",
        );
        let env = |names: &[&str]| json!(names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>());
        let at = "cliques/0/spec/podSpec/containers/0/env";
        check(at, env(&["A", "B"]), "");
        check(at, env(&["A", "A"]), "E cliques[0].spec.podSpec.containers[0].env[1].name");
        check(at, env(&["A=B"]), "E cliques[0].spec.podSpec.containers[0].env[0].name");
    }

    #[test]
    fn order_of_start() {
        let explicit = |after: [&[&str]; 3], expected: &str| {
            let mut object = set_json(SET);
            object["spec"]["template"]["cliqueStartupType"] = json!("CliqueStartupTypeExplicit");
            for (index, after) in after.iter().enumerate() {
                object["spec"]["template"]["cliques"][index]["spec"]["startsAfter"] = json!(after);
            }
            let findings = with_world(&Options::default(), |world| create(&object, world));
            assert_eq!(show(&findings), expected, "{after:?}");
        };
        explicit([&[], &["a"], &["a", "b"]], "");
        explicit([&["b"], &["a"], &[]], "E cliques[0].spec.startsAfter");
        explicit([&["c"], &["a"], &["b"]], "E cliques[0].spec.startsAfter");
        explicit([&["a"], &[], &[]], "E cliques[0].spec.startsAfter");
        explicit([&["x"], &[], &[]], "E cliques[0].spec.startsAfter");
        explicit([&["b", "b"], &[], &[]], "E cliques[0].spec.startsAfter");
        explicit([&[""], &[], &[]], "E cliques[0].spec.startsAfter");
        check("cliques/0/spec/startsAfter", json!(["b"]), "W cliques[0].spec.startsAfter");
    }

    #[test]
    fn one_scheduler() {
        check("cliques/0/spec/podSpec/schedulerName", json!("kai-scheduler"), "");
        let mut object = changed("cliques/0/spec/podSpec/schedulerName", json!("kai-scheduler"));
        object["spec"]["template"]["cliques"][1]["spec"]["podSpec"]["schedulerName"] = json!("volcano");
        let findings = with_world(&Options::default(), |world| create(&object, world));
        assert_eq!(show(&findings), "E cliques[1].spec.podSpec.schedulerName");
        let options = Options { enabled: vec![BackendName::Default], ..Options::default() };
        check_with(&options, "", Value::Null, "");
        check_with(
            &options,
            "cliques/0/spec/podSpec/schedulerName",
            json!("volcano"),
            "E cliques[0].spec.podSpec.schedulerName",
        );
        check("cliques/0/spec/podSpec/priorityClassName", json!("high"), "W priorityClassName");
    }

    #[test]
    fn one_queue() {
        let mut object = changed("cliques/0/spec/podSpec/schedulerName", json!("kai-scheduler"));
        object["metadata"]["labels"] = json!({"kai.scheduler/queue": "x"});
        object["spec"]["template"]["cliques"][1]["labels"] = json!({"kai.scheduler/queue": "y"});
        let findings = with_world(&Options::default(), |world| create(&object, world));
        assert_eq!(show(&findings), "E cliques[1].labels[kai.scheduler/queue]");
    }

    #[test]
    fn claims() {
        let request = json!({"spec": {"devices": {"requests": [{"name": "r"}]}}});
        let template = |name: &str, spec: &Value| json!({"name": name, "templateSpec": spec});
        check("resourceClaimTemplates", json!([template("t", &request)]), "");
        check("resourceClaimTemplates", json!([template("", &request)]), "E resourceClaimTemplates[0].name");
        check(
            "resourceClaimTemplates",
            json!([template("t", &request), template("t", &request)]),
            "E resourceClaimTemplates[1].name",
        );
        check(
            "resourceClaimTemplates",
            json!([template("t", &json!({}))]),
            "E resourceClaimTemplates[0].templateSpec.spec.devices.requests",
        );
        let share = |extra: Value| {
            let mut entry = json!({"name": "t", "scope": "AllReplicas"});
            entry.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            json!([entry])
        };
        check("resourceSharing", share(json!({})), "");
        check("resourceSharing", share(json!({"scope": "Some"})), "E resourceSharing[0].scope");
        check("resourceSharing", share(json!({"filter": {}})), "E resourceSharing[0].filter");
        check("resourceSharing", share(json!({"filter": {"childCliqueNames": ["a"]}})), "");
        check(
            "resourceSharing",
            share(json!({"filter": {"childCliqueNames": ["x"], "childScalingGroupNames": ["y"]}})),
            "E resourceSharing[0].filter.childCliqueNames, E resourceSharing[0].filter.childScalingGroupNames",
        );
        check(
            "podCliqueScalingGroups/0/resourceSharing",
            share(json!({"filter": {"childCliqueNames": ["a"]}})),
            "E groups[0].resourceSharing[0].filter.childCliqueNames",
        );
    }

    fn pack(required: &str, preferred: &str, name: &str) -> Value {
        let mut pack = json!({});
        for (field, domain) in [("required", required), ("preferred", preferred)] {
            if !domain.is_empty() {
                pack[field] = json!(domain);
            }
        }
        let mut out = json!({"pack": pack});
        if !name.is_empty() {
            out["topologyName"] = json!(name);
        }
        out
    }

    /// Constraints of set, group and the clique `b` in it, each as `required/preferred@name`.
    #[track_caller]
    fn check_topology(levels: [&str; 3], expected: &str) {
        let mut object = set_json(SET);
        let template = &mut object["spec"]["template"];
        let read = |text: &str| {
            let (levels, name) = text.split_once('@').unwrap_or((text, ""));
            let (required, preferred) = levels.split_once('/').unwrap_or((levels, ""));
            pack(required, preferred, name)
        };
        if !levels[0].is_empty() {
            template["topologyConstraint"] = read(levels[0]);
        }
        if !levels[1].is_empty() {
            template["podCliqueScalingGroups"][0]["topologyConstraint"] = read(levels[1]);
        }
        if !levels[2].is_empty() {
            template["cliques"][1]["topologyConstraint"] = read(levels[2]);
        }
        let findings = with_world(&Options::default(), |world| create(&object, world));
        assert_eq!(show(&findings).replace("topologyConstraint", "tc"), expected, "{levels:?}: {findings:?}");
    }

    #[test]
    fn topologies() {
        check_topology(["rack@dc", "", ""], "");
        check_topology(["zone@dc", "rack", "host"], "");
        check_topology(["", "", "host@dc"], "");
        check_topology(["rack", "", ""], "E tc.topologyName");
        check_topology(["rack@other", "", ""], "E tc.topologyName");
        check_topology(["zone@dc", "rack@other", ""], "E groups[0].tc.topologyName");
        check_topology(["rack@dc", "zone", ""], "E groups[0].tc.pack.required");
        check_topology(["", "rack@dc", "block"], "E cliques[1].tc.pack.required");
        check_topology(["/rack@dc", "/zone", ""], "E groups[0].tc.pack.preferred");
        check_topology(["rack@dc", "/zone", ""], "");
        check_topology(["row@dc", "zone", ""], "E tc.pack.required");
        check_topology(["rack/zone@dc", "", ""], "W tc.pack.preferred");
        check_topology(["@dc", "", ""], "E tc.pack");
        check("topologyConstraint", json!({"topologyName": "dc"}), "E topologyConstraint.pack");
        check(
            "topologyConstraint",
            json!({"topologyName": "dc", "packDomain": "rack"}),
            "E topologyConstraint.packDomain",
        );
        let off = Options { topology: false, ..Options::default() };
        check_with(&off, "topologyConstraint", pack("rack", "", "dc"), "E topologyConstraint");
    }

    #[test]
    fn compute_domains() {
        let on = Options { mnnvl: true, ..Options::default() };
        let put = |value: &str| {
            let mut object = set_json(SET);
            object["spec"]["template"]["cliques"][0]["annotations"] = json!({keys::MNNVL_GROUP: value});
            object
        };
        let judged =
            |value: &str, options: &Options| show(&with_world(options, |world| create(&put(value), world)));
        assert_eq!(judged("x", &on), "");
        assert_eq!(judged("X!", &on), "E cliques[0].annotations[grove.io/mnnvl-group]");
        assert_eq!(judged("x", &Options::default()), "E cliques[0].annotations[grove.io/mnnvl-group]");
        assert_eq!(judged("none", &Options::default()), "");
    }

    #[track_caller]
    fn check_update(path: &str, value: Value, expected: &str) {
        let (mut old, mut new) = (set_json(SET), changed(path, value.clone()));
        defaults::set(&mut old);
        defaults::set(&mut new);
        let findings = with_world(&Options::default(), |world| update(&new, &old, world));
        assert_eq!(show(&findings), expected, "{path} {value}: {findings:?}");
    }

    #[test]
    fn what_cannot_be_changed() {
        check_update("/spec/replicas", json!(7), "");
        check_update("terminationDelay", json!("1m"), "");
        check_update("priorityClassName", json!("x"), "");
        check_update("cliques/0/spec/replicas", json!(5), "");
        check_update("cliques/0/spec/podSpec/containers/0/image", json!("x"), "");
        check_update("cliques/0/spec/podSpec/nodeName", json!("n"), "");
        check_update("cliqueStartupType", json!("CliqueStartupTypeInOrder"), "E cliqueStartupType");
        check_update("cliques/0/spec/roleName", json!("r"), "E cliques[0].spec.roleName");
        check_update("cliques/0/spec/minAvailable", json!(2), "E cliques[0].spec.minAvailable");
        check_update(
            "cliques/0/spec/startsAfter",
            json!(["b"]),
            "E cliques[0].spec.startsAfter, W cliques[0].spec.startsAfter",
        );
        check_update(
            "cliques/0/spec/podSpec/schedulerName",
            json!("volcano"),
            "E cliques[0].spec.podSpec.schedulerName",
        );
        check_update("cliques/0/spec/podSpec/schedulerName", json!("default-scheduler"), "");
        check_update("cliques/0/name", json!("z"), "E cliques");
        check_update("podCliqueScalingGroups/0/minAvailable", json!(2), "E groups[0].minAvailable");
        check_update("podCliqueScalingGroups/0/replicas", json!(5), "");
        check_update("podCliqueScalingGroups/0/cliqueNames", json!(["b"]), "E groups[0].cliqueNames");
        check_update("podCliqueScalingGroups", json!([]), "E groups");
        check_update("podCliqueScalingGroups/0/name", json!("other"), "E groups[0].name, E groups");
        check_update("resourceSharing", json!([{"name": "t", "scope": "AllReplicas"}]), "E resourceSharing");
        check_update(
            "cliques/0/resourceSharing",
            json!([{"name": "t", "scope": "AllReplicas"}]),
            "E cliques[0].resourceSharing",
        );
        check_update("topologyConstraint", pack("rack", "", "dc"), "E topologyConstraint");
        check_update(
            "/metadata/annotations",
            json!({keys::MNNVL_GROUP: "x"}),
            "E metadata.annotations[grove.io/mnnvl-group]",
        );
    }

    #[test]
    fn order_is_frozen_where_it_means_something() {
        for (kind, expected) in [("CliqueStartupTypeAnyOrder", ""), ("CliqueStartupTypeInOrder", "E cliques")]
        {
            let mut old = set_json(SET);
            old["spec"]["template"]["cliqueStartupType"] = json!(kind);
            let mut new = old.clone();
            new["spec"]["template"]["cliques"].as_array_mut().unwrap().swap(0, 1);
            let findings = with_world(&Options::default(), |world| update(&new, &old, world));
            assert_eq!(show(&findings), expected);
        }
    }

    #[test]
    fn an_old_spelling_may_be_made_new() {
        let judged = |old: Value, new: Value| {
            let (old, new) = (changed("topologyConstraint", old), changed("topologyConstraint", new));
            show(&with_world(&Options::default(), |world| update(&new, &old, world)))
        };
        let old = json!({"packDomain": "rack"});
        assert_eq!(judged(old.clone(), json!({"packDomain": "rack", "topologyName": "dc"})), "");
        assert_eq!(judged(old.clone(), json!({"pack": {"required": "rack"}, "topologyName": "dc"})), "");
        assert_eq!(
            judged(old, json!({"pack": {"required": "host"}, "topologyName": "dc"})),
            "E topologyConstraint"
        );
    }

    #[test]
    fn what_is_going_or_unchanged_is_not_judged() {
        let bad = changed("cliques/0/name", json!("A"));
        let mut worse = changed("cliques/0/name", json!("B"));
        let judged = |new: &Value, old: &Value| {
            show(&with_world(&Options::default(), |world| update(new, old, world)))
        };
        assert_eq!(judged(&bad, &bad), "");
        worse["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(judged(&worse, &bad), "");
        let mut scaled = bad.clone();
        scaled["spec"]["replicas"] = json!(3);
        assert_eq!(judged(&scaled, &bad), "", "old sins stay updatable");
    }

    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[a-c./-]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(
                    "name|spec|replicas|cliqueNames|startsAfter|podSpec|env|pack",
                    inner,
                    0..4
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_panics(at in prop_oneof![Just("cliques"), Just("podCliqueScalingGroups"), Just("cliques/0/spec"), Just("resourceSharing"), Just("topologyConstraint")], value in odd()) {
            let new = changed(at, value);
            let old = set_json(SET);
            with_world(&Options::default(), |world| {
                create(&new, world);
                update(&new, &old, world);
                update(&old, &new, world);
            });
        }
    }
}
