//! What a set is made of: which cliques, groups and gangs its replicas have.
//!
//! In: a set, and how many replicas its scaling groups have at the moment. Out: cliques and gangs with their names and
//! labels. Must stay true: every clique of a replica is in exactly one gang; replicas of a group below its minimum are in
//! the base gang, each one beyond is a gang of its own.

use std::collections::BTreeMap;

use muster_runtime::object::{Meta, Strings};
use serde_json::Value;

use crate::hash;
use crate::keys::{self, component};
use crate::names;
use crate::object::{CliqueTemplate, GroupConfig, PodCliqueSet, TopologyConstraint, index, text};
use crate::settings::{BackendName, Options};

/// A clique of a replica of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clique<'a> {
    pub set: &'a PodCliqueSet,
    pub template: &'a CliqueTemplate,
    pub replica: i64,
    /// The replica of the scaling group that it is in.
    pub within: Option<(&'a GroupConfig, i64)>,
}

/// A gang of a replica of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct Gang<'a> {
    pub name: String,
    pub replica: i64,
    /// The replica of a group that the gang consists of; `None` for the base gang.
    pub scaled: Option<(&'a GroupConfig, i64)>,
    pub cliques: Vec<Clique<'a>>,
}

/// How many replicas a scaling group has now, by its full name; `None` if it does not exist yet.
pub type Live<'a> = dyn Fn(&str) -> Option<i64> + 'a;

impl<'a> Clique<'a> {
    pub fn name(&self) -> String {
        let set = &self.set.metadata.name;
        match self.within {
            None => names::clique(set, self.replica, &self.template.name),
            Some((group, index)) => {
                let group = names::group(set, self.replica, &group.name);
                names::group_clique(&group, index, &self.template.name)
            }
        }
    }

    /// The full name of its scaling group.
    pub fn group_name(&self) -> Option<String> {
        let (group, _) = self.within?;
        Some(names::group(&self.set.metadata.name, self.replica, &group.name))
    }

    /// The gang that it belongs to, and the base gang if that is another.
    pub fn gang(&self) -> (String, Option<String>) {
        let set = &self.set.metadata.name;
        let base = names::replica(set, self.replica);
        match self.within {
            Some((group, index)) if index >= group.min_available() => {
                let index = index - group.min_available();
                (names::scaled_gang(set, self.replica, &group.name, index), Some(base))
            }
            _ => (base, None),
        }
    }

    /// The labels of the PodClique.
    pub fn labels(&self) -> Strings {
        let mut labels = self.template.labels.clone();
        let name = self.name();
        let what = if self.within.is_some() { component::GROUP_CLIQUE } else { component::CLIQUE };
        labels.extend(owned(&self.set.metadata.name, what, &name));
        labels.insert(keys::SET_REPLICA.into(), self.replica.to_string());
        labels.insert(keys::PODCLIQUE.into(), name);
        labels.insert(keys::TEMPLATE_HASH.into(), hash::template(self.template));
        let (gang, base) = self.gang();
        labels.insert(keys::PODGANG.into(), gang);
        if let Some(base) = base {
            labels.insert(keys::BASE_PODGANG.into(), base);
        }
        if let (Some(group), Some((_, index))) = (self.group_name(), self.within) {
            labels.insert(keys::GROUP.into(), group);
            labels.insert(keys::GROUP_REPLICA.into(), index.to_string());
        }
        labels
    }

    /// The cliques that must be ready before this one starts, with how many pods each must have ready.
    pub fn starts_after(&self) -> Vec<(String, i64)> {
        let template = &self.set.spec.template;
        let before: Vec<&CliqueTemplate> = match template.clique_startup_type.as_str() {
            "CliqueStartupTypeInOrder" => {
                let own = template.cliques.iter().position(|c| c.name == self.template.name);
                own.and_then(|own| own.checked_sub(1))
                    .and_then(|before| template.cliques.get(before))
                    .into_iter()
                    .collect()
            }
            "CliqueStartupTypeExplicit" => {
                let after = &self.template.spec.starts_after;
                template
                    .cliques
                    .iter()
                    .filter(|c| after.contains(&c.name) && c.name != self.template.name)
                    .collect()
            }
            _ => Vec::new(),
        };
        let (own_gang, base) = self.gang();
        let mut out = Vec::new();
        for parent in before {
            let group = self.set.group_of(&parent.name);
            let min = parent.spec.min_available();
            let mut add = |within| {
                let parent = Clique { template: parent, within, ..*self };
                out.push((parent.name(), min));
            };
            match (group, base.is_some()) {
                (None, false) => add(None),
                (Some(group), false) => {
                    (0..group.min_available()).for_each(|index| add(Some((group, index))))
                }
                // Order holds within a gang; of a scaled gang only its own group's cliques are members.
                (Some(group), true) => {
                    if let Some((own, index)) = self.within
                        && own.name == group.name
                    {
                        add(Some((group, index)));
                    }
                }
                (None, true) => {}
            }
        }
        debug_assert!(base.is_none() || own_gang != names::replica(&self.set.metadata.name, self.replica));
        out
    }
}

/// The labels of everything that belongs to a set.
pub fn owned(set: &str, component: &str, name: &str) -> Strings {
    // A name can hold what a label cannot: the colons of roles, and more letters.
    let name: String = name.replace(':', "-").chars().take(63).collect();
    let name = name.trim_end_matches(['-', '.']);
    [
        (keys::MANAGED_BY, keys::OPERATOR),
        (keys::PART_OF, set),
        (keys::COMPONENT, component),
        (keys::NAME, name),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

impl PodCliqueSet {
    pub fn clique_template(&self, name: &str) -> Option<&CliqueTemplate> {
        self.spec.template.cliques.iter().find(|clique| clique.name == name)
    }

    /// The scaling group that a clique is in.
    pub fn group_of(&self, clique: &str) -> Option<&GroupConfig> {
        let mut groups = self.spec.template.pod_clique_scaling_groups.iter();
        groups.find(|group| group.clique_names.iter().any(|name| name == clique))
    }

    /// The cliques of a replica that are in no group, in the order of the template.
    pub fn standalone(&self, replica: i64) -> impl Iterator<Item = Clique<'_>> {
        self.spec
            .template
            .cliques
            .iter()
            .filter(|clique| self.group_of(&clique.name).is_none())
            .map(move |template| Clique { set: self, template, replica, within: None })
    }

    /// The cliques of a replica of a group, in the order of the group.
    pub fn grouped<'a>(
        &'a self,
        replica: i64,
        group: &'a GroupConfig,
        index: i64,
    ) -> impl Iterator<Item = Clique<'a>> {
        group.clique_names.iter().filter_map(|name| self.clique_template(name)).map(move |template| Clique {
            set: self,
            template,
            replica,
            within: Some((group, index)),
        })
    }

    /// The clique that a PodClique was made for. By its labels and its whole name: a name is never taken apart.
    pub fn find_clique(&self, meta: &Meta) -> Option<Clique<'_>> {
        let replica = index(meta, keys::SET_REPLICA)?;
        for template in &self.spec.template.cliques {
            let within = match self.group_of(&template.name) {
                Some(group) => match index(meta, keys::GROUP_REPLICA) {
                    Some(index) => Some((group, index)),
                    None => continue,
                },
                None => None,
            };
            let clique = Clique { set: self, template, replica, within };
            if clique.name() == meta.name {
                return Some(clique);
            }
        }
        None
    }

    /// The gang that a PodGang was made for.
    pub fn find_gang(&self, meta: &Meta, live: &Live<'_>) -> Option<Gang<'_>> {
        let at = |replica| self.gangs(replica, live).into_iter().find(|gang| gang.name == meta.name);
        match index(meta, keys::SET_REPLICA) {
            Some(replica) if replica < self.replicas() => at(replica),
            Some(_) => None,
            // Today's Grove does not say which replica a gang is of.
            None => (0..self.replicas()).find_map(at),
        }
    }

    /// The gangs of a replica, the base gang first.
    pub fn gangs<'a>(&'a self, replica: i64, live: &Live<'_>) -> Vec<Gang<'a>> {
        let name = &self.metadata.name;
        let groups = &self.spec.template.pod_clique_scaling_groups;
        let mut cliques: Vec<Clique<'a>> = self.standalone(replica).collect();
        for group in groups {
            for index in 0..group.min_available() {
                cliques.extend(self.grouped(replica, group, index));
            }
        }
        let mut gangs = vec![Gang { name: names::replica(name, replica), replica, scaled: None, cliques }];
        for group in groups {
            let n_replicas =
                live(&names::group(name, replica, &group.name)).unwrap_or_else(|| group.replicas());
            for index in group.min_available()..n_replicas {
                gangs.push(Gang {
                    name: names::scaled_gang(name, replica, &group.name, index - group.min_available()),
                    replica,
                    scaled: Some((group, index)),
                    cliques: self.grouped(replica, group, index).collect(),
                });
            }
        }
        gangs
    }

    /// The scheduler name of the set: the first that a clique says.
    pub fn scheduler_name(&self) -> &str {
        let names = self.spec.template.cliques.iter().map(|c| text(&c.spec.pod_spec, &["schedulerName"]));
        names.into_iter().find(|name| !name.is_empty()).unwrap_or("")
    }

    pub fn backend(&self, options: &Options) -> BackendName {
        options.route(self.scheduler_name())
    }

    /// The priority class of its gangs: what the template says, or what all its pods say.
    pub fn priority_class(&self) -> &str {
        let template = &self.spec.template;
        if !template.priority_class_name.is_empty() {
            return &template.priority_class_name;
        }
        let mut classes = template.cliques.iter().map(|c| text(&c.spec.pod_spec, &["priorityClassName"]));
        let first = classes.next().unwrap_or("");
        if classes.all(|class| class == first) { first } else { "" }
    }

    /// The topology that its constraints speak of; all of them speak of one.
    pub fn topology_name(&self) -> &str {
        let template = &self.spec.template;
        let groups = template.pod_clique_scaling_groups.iter().map(|g| g.topology_constraint.as_ref());
        let cliques = template.cliques.iter().map(|c| c.topology_constraint.as_ref());
        let all = std::iter::once(template.topology_constraint.as_ref()).chain(groups).chain(cliques);
        all.flatten().map(|c| c.topology_name.as_str()).find(|name| !name.is_empty()).unwrap_or("")
    }

    pub fn constraints(&self) -> impl Iterator<Item = &TopologyConstraint> {
        let template = &self.spec.template;
        let groups = template.pod_clique_scaling_groups.iter().filter_map(|g| g.topology_constraint.as_ref());
        let cliques = template.cliques.iter().filter_map(|c| c.topology_constraint.as_ref());
        template.topology_constraint.iter().chain(groups).chain(cliques)
    }

    /// The compute domain group of a clique: the nearest that is said, of clique, group and set. Cliques without GPUs have
    /// none.
    pub fn mnnvl_group(&self, clique: &Clique<'_>) -> Option<&str> {
        if !wants_gpu(&clique.template.spec.pod_spec) {
            return None;
        }
        let template = self.clique_template(&clique.template.name)?;
        let group = self.group_of(&template.name);
        let said = template
            .annotations
            .get(keys::MNNVL_GROUP)
            .or_else(|| group?.annotations.get(keys::MNNVL_GROUP))
            .or_else(|| self.metadata.annotations.get(keys::MNNVL_GROUP))?;
        (said != keys::MNNVL_NONE && !said.is_empty()).then_some(said)
    }

    /// The kinds of template hash by clique name.
    pub fn hashes(&self) -> BTreeMap<&str, String> {
        self.spec.template.cliques.iter().map(|c| (c.name.as_str(), hash::template(c))).collect()
    }
}

const GPU: &str = "nvidia.com/gpu";

pub fn container_wants_gpu(container: &Value) -> bool {
    ["limits", "requests"].iter().any(|kind| {
        let amount = container.get("resources").and_then(|r| r.get(kind)).and_then(|r| r.get(GPU));
        amount.is_some_and(|amount| !matches!(amount.as_str(), Some("0")) && amount.as_i64() != Some(0))
    })
}

pub fn wants_gpu(pod_spec: &Value) -> bool {
    ["containers", "initContainers"]
        .iter()
        .flat_map(|kind| crate::object::list(pod_spec, &[kind]))
        .any(container_wants_gpu)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A set in short: `name xN; clique replicas/min; group xN/min: clique clique`, cliques as `a 2/1`, groups as
    /// `sg x2/1: b c`. What follows `>` on a clique is what it starts after.
    pub(crate) fn set(text: &str) -> PodCliqueSet {
        serde_json::from_value(set_json(text)).unwrap()
    }

    pub(crate) fn set_json(text: &str) -> Value {
        let mut parts = text.split(';').map(str::trim);
        let (name, replicas) = parts.next().unwrap().split_once(" x").unwrap();
        let (mut cliques, mut groups) = (Vec::new(), Vec::new());
        for part in parts.filter(|p| !p.is_empty()) {
            if let Some((head, members)) = part.split_once(':') {
                let (name, size) = head.split_once(" x").unwrap();
                let (replicas, min) = size.split_once('/').unwrap();
                groups.push(json!({
                    "name": name, "replicas": replicas.trim().parse::<i64>().unwrap(),
                    "minAvailable": min.trim().parse::<i64>().unwrap(),
                    "cliqueNames": members.split_whitespace().collect::<Vec<_>>(),
                }));
            } else {
                let (head, after) = part.split_once('>').unwrap_or((part, ""));
                let (name, size) = head.trim().split_once(' ').unwrap();
                let (replicas, min) = size.split_once('/').unwrap();
                let mut clique = json!({
                    "name": name,
                    "spec": {
                        "roleName": name, "replicas": replicas.parse::<i64>().unwrap(),
                        "minAvailable": min.parse::<i64>().unwrap(),
                        "podSpec": {"containers": [{"name": "main", "image": "app:1"}]},
                    },
                });
                if !after.is_empty() {
                    clique["spec"]["startsAfter"] = json!(after.split_whitespace().collect::<Vec<_>>());
                }
                cliques.push(clique);
            }
        }
        let mut template = json!({"cliques": cliques});
        if !groups.is_empty() {
            template["podCliqueScalingGroups"] = json!(groups);
        }
        json!({
            "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"replicas": replicas.parse::<i64>().unwrap(), "template": template},
        })
    }

    pub(crate) const WL1: &str = "wl x1; pc-a 2/2; pc-b 1/1; pc-c 3/3; sg-x x2/2: pc-b pc-c";
    pub(crate) const WL2: &str = "wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c";

    #[track_caller]
    fn check_gangs(text: &str, live: &[(&str, i64)], expected: &str) {
        let set = set(text);
        let live = |name: &str| live.iter().find(|(n, _)| *n == name).map(|(_, n)| *n);
        let shown: Vec<String> = (0..set.replicas())
            .flat_map(|replica| set.gangs(replica, &live))
            .map(|gang| {
                let cliques: Vec<String> = gang.cliques.iter().map(Clique::name).collect();
                format!("{}[{}]", gang.name, cliques.join(" "))
            })
            .collect();
        assert_eq!(shown.join(", "), expected);
    }

    #[test]
    fn gangs() {
        check_gangs(
            WL2,
            &[],
            "wl-0[wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c], wl-0-sg-x-0[wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c]",
        );
        check_gangs(
            WL1,
            &[],
            "wl-0[wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c]",
        );
        check_gangs("p x2; w 2/2", &[], "p-0[p-0-w], p-1[p-1-w]");
        check_gangs("p x0; w 2/2", &[], "");
        check_gangs(
            "p x1; w 1/1; sg x3/2: w",
            &[("p-0-sg", 5)],
            "p-0[p-0-sg-0-w p-0-sg-1-w], p-0-sg-0[p-0-sg-2-w], p-0-sg-1[p-0-sg-3-w], p-0-sg-2[p-0-sg-4-w]",
        );
        check_gangs("p x1; w 1/1; sg x3/2: w", &[("p-0-sg", 2)], "p-0[p-0-sg-0-w p-0-sg-1-w]");
        check_gangs(
            "p x1; a 1/1; b 1/1; sga x3/1: a; sgb x2/1: b",
            &[],
            "p-0[p-0-sga-0-a p-0-sgb-0-b], p-0-sga-0[p-0-sga-1-a], p-0-sga-1[p-0-sga-2-a], p-0-sgb-0[p-0-sgb-1-b]",
        );
    }

    #[test]
    fn a_clique_is_in_the_gang_that_lists_it() {
        for text in [WL1, WL2, "p x2; a 1/1; b 2/1; sg x4/2: b"] {
            let set = set(text);
            for replica in 0..set.replicas() {
                for gang in set.gangs(replica, &|_| None) {
                    for clique in &gang.cliques {
                        let (own, base) = clique.gang();
                        assert_eq!(own, gang.name);
                        assert_eq!(base.is_some(), gang.scaled.is_some());
                    }
                }
            }
        }
    }

    #[track_caller]
    fn check_order(kind: &str, text: &str, group_replica: i64, clique: &str, expected: &str) {
        let mut set = set(text);
        set.spec.template.clique_startup_type = format!("CliqueStartupType{kind}");
        let template = set.clique_template(clique).unwrap();
        let within = set.group_of(clique).map(|group| (group, group_replica));
        let clique = Clique { set: &set, template, replica: 0, within };
        let shown: Vec<String> =
            clique.starts_after().iter().map(|(name, min)| format!("{name}:{min}")).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn order_of_start() {
        check_order("AnyOrder", WL2, 0, "pc-b", "");
        check_order("InOrder", WL2, 0, "pc-a", "");
        check_order("InOrder", WL2, 0, "pc-b", "wl-0-pc-a:1");
        check_order("InOrder", WL2, 0, "pc-c", "wl-0-sg-x-0-pc-b:1");
        check_order("InOrder", WL2, 1, "pc-b", "");
        check_order("InOrder", WL2, 1, "pc-c", "wl-0-sg-x-1-pc-b:1");
        check_order("InOrder", WL1, 0, "pc-c", "wl-0-sg-x-0-pc-b:1 wl-0-sg-x-1-pc-b:1");
        let explicit = "wl x1; pc-a 2/2; pc-b 1/1 > pc-c; pc-c 3/3 > pc-a; sg-x x2/2: pc-b pc-c";
        check_order("Explicit", explicit, 0, "pc-a", "");
        check_order("Explicit", explicit, 0, "pc-c", "wl-0-pc-a:2");
        check_order("Explicit", explicit, 0, "pc-b", "wl-0-sg-x-0-pc-c:3 wl-0-sg-x-1-pc-c:3");
        check_order("AnyOrder", explicit, 0, "pc-b", "");
        check_order("Explicit", "p x1; worker 1/1; gpu-worker 1/1 > worker", 0, "gpu-worker", "p-0-worker:1");
        check_order("Explicit", "p x1; a 1/1 > a", 0, "a", "");
    }

    fn shapes() -> impl Strategy<Value = PodCliqueSet> {
        let sizes = prop::collection::vec((1i64..4, 1i64..4), 1..5);
        let groups = prop::collection::vec((0usize..5, 1i64..4, 1i64..4), 0..3);
        (1i64..4, sizes, groups).prop_map(|(replicas, sizes, groups)| {
            let mut text = format!("p x{replicas}");
            for (i, (n, min)) in sizes.iter().enumerate() {
                text.push_str(&format!("; c{i} {n}/{}", min.min(n)));
            }
            let mut free: Vec<usize> = (0..sizes.len()).collect();
            for (i, (at, n, min)) in groups.iter().enumerate() {
                if let Some(at) = free.iter().position(|clique| clique == at) {
                    text.push_str(&format!("; g{i} x{n}/{}: c{}", min.min(n), free.remove(at)));
                }
            }
            set(&text)
        })
    }

    proptest! {
        /// Every clique of a replica is in exactly one gang, names are never shared, and labels lead back.
        #[test]
        fn gangs_part_the_cliques(set in shapes(), more in 0i64..4) {
            let live = |name: &str| {
                let config = set.spec.template.pod_clique_scaling_groups.iter().find(|g| name.ends_with(&format!("-{}", g.name)))?;
                Some(config.replicas() + more)
            };
            let mut cliques = std::collections::BTreeSet::new();
            let mut gangs = std::collections::BTreeSet::new();
            let mut n_cliques = 0;
            for replica in 0..set.replicas() {
                for gang in set.gangs(replica, &live) {
                    for clique in &gang.cliques {
                        n_cliques += 1;
                        cliques.insert(clique.name());
                        prop_assert_eq!(&clique.gang().0, &gang.name);
                        let meta = Meta { name: clique.name(), labels: clique.labels(), ..Meta::default() };
                        prop_assert_eq!(set.find_clique(&meta), Some(*clique));
                    }
                    let meta = Meta { name: gang.name.clone(), ..Meta::default() };
                    prop_assert_eq!(set.find_gang(&meta, &live), Some(gang.clone()));
                    prop_assert!(gangs.insert(gang.name));
                }
            }
            prop_assert_eq!(cliques.len(), n_cliques);
            let grouped: i64 = set.spec.template.pod_clique_scaling_groups.iter().map(|g| g.replicas() + more).sum();
            let alone = set.standalone(0).count() as i64;
            prop_assert_eq!(n_cliques as i64, set.replicas() * (alone + grouped));
        }
    }

    #[test]
    fn labels_say_where_a_clique_belongs() {
        let set = set(WL2);
        let group = &set.spec.template.pod_clique_scaling_groups[0];
        let clique = set.grouped(0, group, 1).next().unwrap();
        let labels = clique.labels();
        let get = |key: &str| labels.get(key).map_or("", String::as_str);
        assert_eq!(get(keys::PODGANG), "wl-0-sg-x-0");
        assert_eq!(get(keys::BASE_PODGANG), "wl-0");
        assert_eq!(get(keys::GROUP), "wl-0-sg-x");
        assert_eq!(get(keys::GROUP_REPLICA), "1");
        assert_eq!(get(keys::COMPONENT), "pcsg-podclique");
        assert_eq!(get(keys::PODCLIQUE), "wl-0-sg-x-1-pc-b");
        let base = set.grouped(0, group, 0).next().unwrap().labels();
        assert!(!base.contains_key(keys::BASE_PODGANG));
    }

    #[test]
    fn priority_of_a_gang() {
        let mut set = set("p x1; a 1/1; b 1/1");
        assert_eq!(set.priority_class(), "");
        for clique in &mut set.spec.template.cliques {
            clique.spec.pod_spec["priorityClassName"] = json!("high");
        }
        assert_eq!(set.priority_class(), "high");
        set.spec.template.cliques[1].spec.pod_spec["priorityClassName"] = json!("low");
        assert_eq!(set.priority_class(), "");
        set.spec.template.priority_class_name = "own".into();
        assert_eq!(set.priority_class(), "own");
    }

    #[test]
    fn compute_domain_groups() {
        let mut set = set("p x1; a 1/1; b 1/1; sg x1/1: b");
        let gpu = json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
        set.spec.template.cliques[0].spec.pod_spec = gpu.clone();
        set.spec.template.cliques[1].spec.pod_spec = gpu;
        let group_of = |set: &PodCliqueSet, name: &str| {
            let template = set.clique_template(name).unwrap();
            set.mnnvl_group(&Clique { set, template, replica: 0, within: None }).map(str::to_owned)
        };
        assert_eq!(group_of(&set, "a"), None);
        set.metadata.annotations.insert(keys::MNNVL_GROUP.into(), "x".into());
        assert_eq!(group_of(&set, "a").as_deref(), Some("x"));
        set.spec.template.pod_clique_scaling_groups[0]
            .annotations
            .insert(keys::MNNVL_GROUP.into(), "none".into());
        assert_eq!(group_of(&set, "b"), None);
        set.spec.template.cliques[1].annotations.insert(keys::MNNVL_GROUP.into(), "y".into());
        assert_eq!(group_of(&set, "b").as_deref(), Some("y"));
        set.spec.template.cliques[1].spec.pod_spec = json!({"containers": [{}]});
        assert_eq!(group_of(&set, "b"), None, "no GPU, no domain");
    }
}
