//! Which group a pod belongs to, and what that group asks for.
//!
//! In: a pod, the chain of its owners, and what else there is to know ([`World`]). Out: a [`Grouping`], or a
//! [`GroupingError`] that says what is wrong and what to do about it. Each kind of owner has its rule in
//! [`kinds`](crate::kinds); this file has what they share. Must stay true: pure; no input panics or costs more than in
//! proportion to its size (save sub-groups, of which there are at most [`MOST_GROUPS`]).

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use muster_runtime::common::Pod;
use muster_runtime::json::short_hash;
use muster_runtime::object::Strings;
use serde_json::{Map, Value, json};

use crate::Options;
use crate::chain::{MOST_OWNERS, Owner, Reference, group_of, object_name, version_of};
use crate::defaults::Defaults;
use crate::keys;
use crate::kinds;

/// No workload is cut into more sub-groups.
pub const MOST_GROUPS: usize = 10_000;

/// Names of PodGroups are DNS subdomains.
const LONGEST_NAME: usize = 253;
/// Names of sub-groups are label values.
const LONGEST_LABEL: usize = 63;

/// What there is to know besides the pod and its owners.
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub options: &'a Options,
    /// The defaults by kind of workload that the administrator set.
    pub defaults: &'a Defaults,
    /// Whether a PriorityClass of this name exists.
    pub has_class: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether a PodGroup of this name exists in the pod's namespace.
    pub has_group: &'a (dyn Fn(&str) -> bool + Sync),
    /// Objects outside the chain that were asked for by [`Want::Object`]; `None` for one that is not there.
    pub also: &'a [(Reference, Option<Arc<Owner>>)],
    /// The pods under the top of the chain, if they were asked for by [`Want::Peers`].
    pub peers: Option<&'a [Arc<Pod>]>,
}

/// The group that a pod belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Grouping {
    pub namespace: String,
    pub name: String,
    /// Who the group goes with.
    pub owner: Reference,
    pub labels: Strings,
    pub annotations: Strings,
    pub queue: String,
    pub priority_class: Wish<String>,
    pub preemptibility: Option<Wish<&'static str>>,
    pub preemption_delay: Option<Wish<String>>,
    pub staleness_grace: Option<Wish<String>>,
    pub topology: Topology,
    pub min: Min,
    pub subgroups: Vec<Subgroup>,
    /// The sub-group of this pod.
    pub subgroup: Option<String>,
    /// The priority class that is named and does not exist (yet).
    pub missing_class: Option<String>,
    /// What was written wrongly, and what was done instead.
    pub notes: Vec<String>,
}

/// A value, and whether it is the workload's or only this pod's: pods of one group may differ, and then the first one
/// decides.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Wish<T> {
    pub value: T,
    pub of_workload: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Min {
    Members(i64),
    Subgroups(i64),
    /// Everything below.
    All,
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Subgroup {
    pub name: String,
    pub parent: Option<String>,
    pub min: Min,
    pub topology: Topology,
}

impl Subgroup {
    pub fn leaf(name: &str, members: i64) -> Self {
        Subgroup {
            name: name.to_owned(),
            parent: None,
            min: Min::Members(members),
            topology: Topology::default(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Hash)]
pub struct Topology {
    pub topology: String,
    pub required: String,
    pub preferred: String,
}

impl Topology {
    /// From annotations, by whichever way they are looked up.
    pub fn of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let text = |key| get(key).unwrap_or_default().to_owned();
        Topology {
            topology: text(keys::TOPOLOGY),
            required: text(keys::TOPOLOGY_REQUIRED),
            preferred: text(keys::TOPOLOGY_PREFERRED),
        }
    }

    /// It names no level, so it asks for nothing.
    pub fn has_no_level(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }

    pub fn to_value(&self) -> Value {
        let fields = [
            ("topology", &self.topology),
            ("requiredTopologyLevel", &self.required),
            ("preferredTopologyLevel", &self.preferred),
        ];
        let set = fields.into_iter().filter(|(_, value)| !value.is_empty());
        Value::Object(set.map(|(key, value)| (key.to_owned(), json!(value))).collect())
    }
}

/// What must be read before a pod can be grouped.
#[derive(Debug, Clone, PartialEq)]
pub enum Want {
    /// An object of the pod's namespace.
    Object(Reference),
    /// All pods under the top of the chain.
    Peers,
}

/// Why a pod is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// It says so.
    Skip,
    /// It has a group and no owner: somebody grouped it by hand.
    GroupedByHand,
    /// It belongs to a group of Kubernetes' own: the field that says so.
    OtherDialect(&'static str),
    /// The kubelet runs it from a file.
    Mirror,
    /// Its PodGang is not there (yet).
    NoPodGang(String),
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GroupingError {
    #[error("left alone")]
    LeftAlone(Leave),
    #[error(
        "{owner} has the annotation {}: \"true\", so its pods are put into no PodGroup and wait until somebody names one in their annotation {}. Take the annotation away, or write it on the pods themselves if each may start alone",
        keys::SKIP,
        keys::GROUP
    )]
    OwnerSaysSkip { owner: String },
    #[error("more must be read first")]
    Missing(Want),
    #[error("{object} has {} owners ({}): a pod is grouped by one chain of owners. Remove all but one of its metadata.ownerReferences, or annotate the pods with {}: \"true\"", owners.len(), owners.join(", "), keys::SKIP)]
    ManyOwners { object: String, owners: Vec<String> },
    #[error(
        "the owners of {object} form a circle, or are more than {most}: remove one of their metadata.ownerReferences"
    )]
    Circle { object: String, most: usize },
    #[error("{object} has no {field}, so how many pods it needs is not known: {fix}")]
    NoField { object: String, field: String, fix: String },
    #[error("{field} of {object} is {value}: {fix}")]
    BadField { object: String, field: String, value: String, fix: String },
    #[error("{object} would have {n} sub-groups, and at most {MOST_GROUPS} are possible: lower {field}")]
    TooManyGroups { object: String, field: String, n: i64 },
    #[error("{object} has two sub-groups that are both named {name}: rename one of its roles")]
    TwoAlike { object: String, name: String },
    #[error("{object} has no label {label}, which its controller sets: {fix}")]
    NoLabel { object: String, label: &'static str, fix: String },
    #[error("{object} is not ready to be grouped: {why}")]
    NotReady { object: String, why: String },
}

/// Groups a pod. `chain` goes from the pod's owner to the top; it is empty for a pod that nobody owns.
pub fn group(pod: &Pod, chain: &[Arc<Owner>], world: &World<'_>) -> Result<Grouping, GroupingError> {
    if let Some(leave) = left_alone(pod) {
        return Err(GroupingError::LeftAlone(leave));
    }
    if let Some(owner) = chain.iter().find(|owner| says_skip(&owner.annotations)) {
        return Err(GroupingError::OwnerSaysSkip {
            owner: object_name(&owner.kind, &owner.namespace, &owner.name),
        });
    }
    if chain.len() > MOST_OWNERS {
        return Err(GroupingError::Circle { object: pod_name(pod), most: MOST_OWNERS });
    }
    let mut grouping = match pod.metadata.labels.get(keys::PODGANG) {
        Some(gang) => kinds::grove::group(pod, chain, gang, world)?,
        None => by_owner(pod, chain, world)?,
    };
    finish(pod, &mut grouping, world.options)?;
    Ok(grouping)
}

/// Why a pod is not the grouper's business, as far as the pod itself says.
pub fn left_alone(pod: &Pod) -> Option<Leave> {
    let annotations = &pod.metadata.annotations;
    if says_skip(annotations) {
        return Some(Leave::Skip);
    }
    // The group that is made for the pod itself may have been deleted, and must come back.
    let by_hand =
        |name: &String| *name != group_name(&format!("pg-{}-{}", pod.metadata.name, pod.metadata.uid));
    if pod.metadata.owner_references.is_empty() && annotations.get(keys::GROUP).is_some_and(by_hand) {
        return Some(Leave::GroupedByHand);
    }
    if annotations.contains_key(keys::MIRROR) {
        return Some(Leave::Mirror);
    }
    if pod.spec.scheduling_group.is_some() {
        return Some(Leave::OtherDialect("spec.schedulingGroup"));
    }
    // Keys of systems that come with a scheduler of their own say nothing to ours: a pod of theirs names that scheduler.
    pod.spec.workload_ref.is_some().then_some(Leave::OtherDialect("spec.workloadRef"))
}

fn says_skip(annotations: &Strings) -> bool {
    annotations.get(keys::SKIP).is_some_and(|value| value == "true")
}

/// What a group is made for: an owner, or the pod itself, with what owners above it pass down.
#[derive(Clone)]
pub struct Subject<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub labels: Cow<'a, Strings>,
    pub annotations: Cow<'a, Strings>,
    pub spec: &'a Value,
    pub status: &'a Value,
    /// Kinds of the owners above it that were skipped; their defaults hold before its own.
    pub skipped: Vec<(&'a str, &'a str)>,
}

impl<'a> Subject<'a> {
    pub fn owner(owner: &'a Owner) -> Self {
        Subject {
            api_version: &owner.api_version,
            kind: &owner.kind,
            namespace: &owner.namespace,
            name: &owner.name,
            uid: &owner.uid,
            labels: Cow::Borrowed(&owner.labels),
            annotations: Cow::Borrowed(&owner.annotations),
            spec: &owner.spec,
            status: &owner.status,
            skipped: Vec::new(),
        }
    }

    pub fn pod(pod: &'a Pod) -> Self {
        Subject {
            api_version: "v1",
            kind: "Pod",
            namespace: &pod.metadata.namespace,
            name: &pod.metadata.name,
            uid: &pod.metadata.uid,
            labels: Cow::Borrowed(&pod.metadata.labels),
            annotations: Cow::Borrowed(&pod.metadata.annotations),
            spec: &Value::Null,
            status: &Value::Null,
            skipped: Vec::new(),
        }
    }

    /// Takes over the labels and annotations of an owner that is skipped, where it has none of its own.
    pub fn inherit(&mut self, owner: &'a Owner) {
        for (mine, theirs) in [(&mut self.labels, &owner.labels), (&mut self.annotations, &owner.annotations)]
        {
            for (key, value) in theirs {
                if !mine.contains_key(key) {
                    mine.to_mut().insert(key.clone(), value.clone());
                }
            }
        }
        self.skipped.push((owner.group(), &owner.kind));
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// `Job team/train`
    pub fn shown(&self) -> String {
        object_name(self.kind, self.namespace, self.name)
    }

    pub fn reference(&self) -> Reference {
        Reference {
            api_version: self.api_version.to_owned(),
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            uid: self.uid.to_owned(),
        }
    }
}

/// All that a rule looks at.
pub struct Ask<'a> {
    pub pod: &'a Pod,
    /// From the pod's owner up to the subject.
    pub chain: &'a [Arc<Owner>],
    pub subject: Subject<'a>,
    pub world: &'a World<'a>,
}

/// How the pods of one kind of owner are grouped.
#[derive(Clone, Copy)]
pub struct Rule {
    /// The priority class of workloads that name none.
    pub class: &'static str,
    /// Whether owners below the top may name the class and the preemptibility too.
    pub whole_chain: bool,
    /// Turns the group of a plain owner into that of this kind.
    pub shape: fn(&Ask<'_>, &mut Grouping) -> Result<(), GroupingError>,
}

fn by_owner(pod: &Pod, chain: &[Arc<Owner>], world: &World<'_>) -> Result<Grouping, GroupingError> {
    let mut above: Vec<&Owner> = Vec::new();
    let mut n_below = chain.len();
    while let Some(top) = n_below.checked_sub(1).and_then(|i| chain.get(i)) {
        if !kinds::is_skipped(top.group(), &top.kind) {
            break;
        }
        above.push(top);
        n_below -= 1;
    }
    let below = chain.get(..n_below).unwrap_or_default();
    let mut subject = below.last().map_or_else(|| Subject::pod(pod), |owner| Subject::owner(owner));
    // The nearest of the skipped owners passes down first.
    for owner in above.into_iter().rev() {
        subject.inherit(owner);
    }
    let ask = Ask { pod, chain: below, subject, world };
    let rule = kinds::rule(group_of(ask.subject.api_version), ask.subject.kind);
    let mut grouping = plain(&ask, &rule);
    (rule.shape)(&ask, &mut grouping)?;
    Ok(grouping)
}

/// The group of an owner of which nothing is known: one pod is enough.
pub fn plain(ask: &Ask<'_>, rule: &Rule) -> Grouping {
    let subject = &ask.subject;
    let mut notes = Vec::new();
    let (priority_class, missing_class) = priority_class(ask, rule, &mut notes);
    let mut annotations = Strings::new();
    if let Some(user) = ask.pod.metadata.annotations.get(keys::USER) {
        annotations.insert(keys::USER.to_owned(), user.clone());
    }
    annotations.insert(keys::TOP_OWNER.to_owned(), top_owner(subject));
    for (key, value) in subject.annotations.iter() {
        if key != keys::GROUP && key != keys::LAST_APPLIED {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let mut labels: Strings = subject.labels.as_ref().clone();
    labels.remove(keys::SUBGROUP);
    if let Some(user) = ask.pod.metadata.labels.get(keys::USER)
        && !labels.contains_key(keys::USER)
    {
        labels.insert(keys::USER.to_owned(), user.clone());
    }
    Grouping {
        namespace: ask.pod.metadata.namespace.clone(),
        name: format!("pg-{}-{}", subject.name, subject.uid),
        owner: subject.reference(),
        labels,
        annotations,
        queue: queue(ask),
        priority_class,
        preemptibility: preemptibility(ask, rule, &mut notes),
        preemption_delay: duration(ask, keys::PREEMPTION_DELAY, "30s", &mut notes),
        staleness_grace: duration(ask, keys::STALENESS_GRACE, "60s", &mut notes),
        topology: Topology::of(|key| subject.annotation(key)),
        min: Min::Members(1),
        subgroups: Vec::new(),
        subgroup: None,
        missing_class,
        notes,
    }
}

/// The owner's queue, then the pod's, then that of the project, then the default one.
fn queue(ask: &Ask<'_>) -> String {
    let options = ask.world.options;
    let pod = &ask.pod.metadata.labels;
    let both = |key: &str| ask.subject.labels.get(key).or_else(|| pod.get(key)).filter(|v| !v.is_empty());
    if let Some(queue) = both(&options.queue_label) {
        return queue.clone();
    }
    match (both(keys::PROJECT), pod.get(&options.node_pool_label)) {
        (Some(project), Some(pool)) => format!("{project}-{pool}"),
        (Some(project), None) => project.clone(),
        (None, _) => options.default_queue.clone(),
    }
}

/// The owners whose labels speak, nearest to the pod first.
fn speaking<'a>(ask: &'a Ask<'_>, rule: &Rule) -> impl Iterator<Item = &'a Strings> {
    let below = ask.chain.len().saturating_sub(1);
    let below = if rule.whole_chain { ask.chain.get(..below).unwrap_or_default() } else { &[] };
    below.iter().map(|owner| &owner.labels).chain(std::iter::once(ask.subject.labels.as_ref()))
}

fn kinds_of<'a>(ask: &'a Ask<'_>, rule: &Rule) -> impl Iterator<Item = (&'a str, &'a str)> {
    let below = ask.chain.len().saturating_sub(1);
    let below = if rule.whole_chain { ask.chain.get(..below).unwrap_or_default() } else { &[] };
    let below = below.iter().map(|owner| (owner.group(), owner.kind.as_str()));
    let own = (group_of(ask.subject.api_version), ask.subject.kind);
    ask.subject.skipped.iter().copied().chain(below).chain(std::iter::once(own))
}

/// The first class that a label or the pod names and that exists, then the administrator's default, then the kind's. Out: also one that is
/// named and does not exist, where it would be taken instead if it did.
fn priority_class(ask: &Ask<'_>, rule: &Rule, notes: &mut Vec<String>) -> (Wish<String>, Option<String>) {
    let exists = ask.world.has_class;
    let pod_label = ask.pod.metadata.labels.get(keys::PRIORITY);
    let pod_class = Some(&ask.pod.spec.priority_class_name).filter(|class| !class.is_empty());
    let mut unknown: Option<&String> = None;
    for labels in speaking(ask, rule) {
        let own = labels.get(keys::PRIORITY);
        if let Some(class) = own.or(pod_label).or(pod_class) {
            if exists(class) {
                // A pod that nobody owns is its own workload.
                let wish = Wish { value: class.clone(), of_workload: own.is_some() };
                return (wish, unknown.cloned());
            }
            unknown.get_or_insert(class);
        }
    }
    let mut by_default = kinds_of(ask, rule)
        .filter_map(|(group, kind)| ask.world.defaults.of(group, kind))
        .filter_map(|default| default.priority_class.as_deref());
    let value = by_default.find(|class| exists(class)).unwrap_or(rule.class).to_owned();
    if let Some(unknown) = unknown {
        notes.push(format!(
            "{} or its pods name the priority class {unknown:?}, which does not exist: {value} is used instead. Create the PriorityClass, or correct the label {}",
            ask.subject.shown(),
            keys::PRIORITY,
        ));
    }
    (Wish { value, of_workload: false }, unknown.cloned())
}

fn preemptibility(ask: &Ask<'_>, rule: &Rule, notes: &mut Vec<String>) -> Option<Wish<&'static str>> {
    let mut read = |word: &str, of_workload: bool| {
        let value = preemptibility_word(word);
        if value.is_none() {
            notes.push(format!(
                "label {} of {} or its pods is {word:?} and is ignored. Write \"preemptible\" or \"non-preemptible\"",
                keys::PREEMPTIBILITY,
                ask.subject.shown(),
            ));
        }
        value.map(|value| Wish { value, of_workload })
    };
    for labels in speaking(ask, rule) {
        if let Some(found) = labels.get(keys::PREEMPTIBILITY).and_then(|word| read(word, true)) {
            return Some(found);
        }
    }
    let pod = ask.pod.metadata.labels.get(keys::PREEMPTIBILITY).filter(|_| ask.subject.kind != "Pod");
    pod.and_then(|word| read(word, false)).or_else(|| {
        let mut by_default = kinds_of(ask, rule)
            .filter_map(|(group, kind)| ask.world.defaults.of(group, kind)?.preemptibility);
        by_default.next().map(|value| Wish { value, of_workload: false })
    })
}

/// The two words that there are.
pub fn preemptibility_word(word: &str) -> Option<&'static str> {
    ["preemptible", "non-preemptible"].into_iter().find(|known| *known == word)
}

fn duration(ask: &Ask<'_>, key: &str, example: &str, notes: &mut Vec<String>) -> Option<Wish<String>> {
    let own = ask.subject.annotation(key);
    let text = own.or_else(|| ask.pod.metadata.annotation(key)).filter(|text| !text.is_empty())?;
    if !is_duration(text) {
        notes.push(format!(
            "annotation {key} of {} or its pods is {text:?}, which is no duration, and is ignored. Write for example {key}: \"{example}\"",
            ask.subject.shown(),
        ));
        return None;
    }
    Some(Wish { value: text.to_owned(), of_workload: own.is_some() })
}

/// Durations as Kubernetes writes them: `90s`, `1h30m`, `-1s`, `1.5h`, `0`.
fn is_duration(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text == "0" {
        return true;
    }
    // Longer than any that means something, and what is longer could not be counted.
    if text.is_empty() || text.len() > 32 {
        return false;
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let n_number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(n_number);
        let n_unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(n_unit);
        // A double knows every number of this length well enough to say whether it is one. Go counts nanoseconds in 64
        // bits, which is 292 years.
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" | "us" | "µs" | "μs" | "ns" => 0.001,
            _ => return false,
        };
        match number.parse::<f64>() {
            Ok(n) => total += n * seconds,
            Err(_) => return false,
        }
        if total > 9.2e9 {
            return false;
        }
        rest = tail;
    }
    true
}

/// What is the same for all kinds: the pool, names that the API takes.
fn finish(pod: &Pod, grouping: &mut Grouping, options: &Options) -> Result<(), GroupingError> {
    if !options.node_pool_label.is_empty()
        && let Some(pool) = pod.metadata.labels.get(&options.node_pool_label)
        && !grouping.labels.contains_key(&options.node_pool_label)
    {
        grouping.labels.insert(options.node_pool_label.clone(), pool.clone());
    }
    grouping.name = group_name(&grouping.name);
    let names = grouping
        .subgroups
        .iter_mut()
        .flat_map(|group| std::iter::once(&mut group.name).chain(&mut group.parent));
    for name in names.chain(&mut grouping.subgroup) {
        if !is_sound(name, LONGEST_LABEL, false) {
            *name = subgroup_name(name);
        }
    }
    let mut names: HashSet<&str> = HashSet::with_capacity(grouping.subgroups.len());
    match grouping.subgroups.iter().map(|group| group.name.as_str()).find(|name| !names.insert(name)) {
        None => Ok(()),
        Some(name) => Err(GroupingError::TwoAlike {
            object: object_name(&grouping.owner.kind, &grouping.namespace, &grouping.owner.name),
            name: name.to_owned(),
        }),
    }
}

/// A name that a PodGroup can have. What has to be changed keeps a hash of what it was, so that different names stay so.
pub fn group_name(wanted: &str) -> String {
    cut(wanted, LONGEST_NAME, true)
}

/// A name that a sub-group can have; the same rules, for one label.
pub fn subgroup_name(wanted: &str) -> String {
    cut(wanted, LONGEST_LABEL, false)
}

/// Whether the API takes a name as it is: labels of small letters, digits and dashes within, with dots between them.
fn is_sound(name: &str, longest: usize, dots: bool) -> bool {
    let mut within = false;
    let mut dash = false;
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => (within, dash) = (true, false),
            b'-' if within => dash = true,
            b'.' if dots && within && !dash => within = false,
            _ => return false,
        }
    }
    within && !dash && name.len() <= longest
}

fn cut(wanted: &str, longest: usize, dots: bool) -> String {
    if is_sound(wanted, longest, dots) {
        return wanted.to_owned();
    }
    let hash = short_hash(&json!(wanted), 0);
    let room = longest - hash.len() - 1;
    let mut kept = String::new();
    for c in wanted.chars().map(|c| c.to_ascii_lowercase()).take(room) {
        let fits = c.is_ascii_lowercase() || c.is_ascii_digit() || (dots && c == '.');
        let c = if fits { c } else { '-' };
        // Dots and dashes side by side are what a subdomain may not have.
        let doubled = matches!(c, '-' | '.') && kept.ends_with('.') || c == '.' && kept.ends_with('-');
        kept.push(if doubled { 'x' } else { c });
    }
    let kept = kept.trim_matches(['-', '.']);
    if kept.is_empty() { hash } else { format!("{kept}-{hash}") }
}

/// Who the group was made for, as YAML.
fn top_owner(subject: &Subject<'_>) -> String {
    let fields = [
        ("name", subject.name),
        ("uid", subject.uid),
        ("group", group_of(subject.api_version)),
        ("version", version_of(subject.api_version)),
        ("kind", subject.kind),
    ];
    fields.iter().map(|(key, value)| format!("{key}: {}\n", scalar(value))).collect()
}

/// A string that YAML reads back as one.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 11] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"];
    let letters = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
    let uuid = text.len() == 36 && text.bytes().filter(|b| *b == b'-').count() == 4;
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let word = WORDS.contains(&text.to_ascii_lowercase().as_str());
    if letters && (uuid || starts) && !word { text.to_owned() } else { json!(text).to_string() }
}

/// `Pod team/train-0`
pub fn pod_name(pod: &Pod) -> String {
    object_name("Pod", &pod.metadata.namespace, &pod.metadata.name)
}

impl Grouping {
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// So many pods succeed, and the group is done. One that is lost when others have succeeded is made again, and must not wait for the
    /// minimum to come together once more.
    pub fn ends_after(&mut self, n_pods: i64) {
        if matches!(self.min, Min::Members(min) if min > 1) {
            self.annotations.insert(keys::MEMBERS.to_owned(), n_pods.to_string());
        }
    }

    /// Hashes what is the group's and not this pod's alone.
    pub fn hash_group(&self, into: &mut impl Hasher) {
        (&self.name, &self.owner, &self.labels, &self.annotations, &self.queue).hash(into);
        (&self.priority_class, &self.preemptibility, &self.preemption_delay, &self.staleness_grace)
            .hash(into);
        (&self.topology, &self.min, &self.subgroups).hash(into);
    }

    /// The spec of its PodGroup.
    pub fn spec(&self) -> Map<String, Value> {
        let mut spec = Map::new();
        self.min.write(&mut spec);
        spec.insert("queue".into(), json!(self.queue));
        spec.insert("priorityClassName".into(), json!(self.priority_class.value));
        if let Some(wish) = &self.preemptibility {
            spec.insert("preemptibility".into(), json!(wish.value));
        }
        for (field, wish) in
            [("preemptionDelay", &self.preemption_delay), ("stalenessGracePeriod", &self.staleness_grace)]
        {
            if let Some(wish) = wish {
                spec.insert(field.into(), json!(wish.value));
            }
        }
        if self.topology != Topology::default() {
            spec.insert("topologyConstraint".into(), self.topology.to_value());
        }
        if !self.subgroups.is_empty() {
            spec.insert("subGroups".into(), self.subgroups.iter().map(Subgroup::to_value).collect());
        }
        spec
    }

    /// Its PodGroup.
    pub fn manifest(&self) -> Value {
        json!({
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
                "ownerReferences": [self.owner_reference()],
            },
            "spec": self.spec(),
        })
    }

    pub fn owner_reference(&self) -> Value {
        json!({
            "apiVersion": self.owner.api_version,
            "kind": self.owner.kind,
            "name": self.owner.name,
            "uid": self.owner.uid,
        })
    }
}

impl Min {
    fn write(self, into: &mut Map<String, Value>) {
        let whole = |n: i64| json!(n.clamp(0, i64::from(i32::MAX)));
        match self {
            Min::Members(n) => into.insert("minMember".into(), whole(n)),
            Min::Subgroups(n) => into.insert("minSubGroup".into(), whole(n)),
            Min::All => None,
        };
    }
}

impl Subgroup {
    fn to_value(&self) -> Value {
        let mut value = Map::new();
        value.insert("name".into(), json!(self.name));
        self.min.write(&mut value);
        if let Some(parent) = &self.parent {
            value.insert("parent".into(), json!(parent));
        }
        if self.topology != Topology::default() {
            value.insert("topologyConstraint".into(), self.topology.to_value());
        }
        Value::Object(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for good in ["0", "90s", "1h30m", "-1s", "1.5h", "10ms", "+3m", "2540400h"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "s", "10", "1d", "1 s", "-", "1..5s", "9999999999999h", "s10", ".s", "1h x"] {
            assert!(!is_duration(bad), "{bad}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(group_name("pg-a.b-1"), "pg-a.b-1");
        let long = group_name(&"a".repeat(400));
        assert!(long.len() <= LONGEST_NAME && long != group_name(&"a".repeat(401)), "{long}");
        assert_eq!(subgroup_name("worker"), "worker");
        assert!(subgroup_name("GPU_group").starts_with("gpu-group-"));
        assert_ne!(subgroup_name("A"), subgroup_name("a"));
        assert!(!subgroup_name("").is_empty() && !subgroup_name("---").is_empty());
    }

    #[test]
    fn yaml_scalars() {
        for (text, shown) in [
            ("", "\"\""),
            ("train", "train"),
            ("true", "\"true\""),
            ("123", "\"123\""),
            ("1e3", "\"1e3\""),
            ("2026-01-01", "\"2026-01-01\""),
            ("12345678-1234-1234-1234-123456789012", "12345678-1234-1234-1234-123456789012"),
            ("a: b", "\"a: b\""),
        ] {
            assert_eq!(scalar(text), shown);
        }
    }

    proptest::proptest! {
        #[test]
        fn every_name_is_one_that_the_api_takes(text in "\\PC{0,300}") {
            let name = group_name(&text);
            let labels: Vec<&str> = name.split('.').collect();
            proptest::prop_assert!(name.len() <= 253);
            for label in labels {
                let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                proptest::prop_assert!(!label.is_empty() && label.chars().all(fits), "{}", name);
                proptest::prop_assert!(!label.starts_with('-') && !label.ends_with('-'), "{}", name);
            }
            let label = subgroup_name(&text);
            proptest::prop_assert!(label.len() <= 63 && !label.contains('.') && !label.starts_with('-') && !label.ends_with('-'));
        }
    }
}
