//! Cases are short texts: `node NAME LABELS`, `pod NODE LABELS RULES`, `gone NODE ..` for a pod that is about to leave, and one
//! `ask LABELS RULES`, separated by semicolons. The laws compare with a plain recount over all pods.

use super::*;
use muster_model::{Expr, LabelSelector, Op, TaintEffect};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn name(text: &str) -> Name {
    text.into()
}

/// A pod or a node as it is written in a case.
#[derive(Clone, Debug, Default)]
struct Written {
    namespace: String,
    labels: Labels,
    taints: Vec<Taint>,
    shape: Shape,
}

/// `app=db`, `app!=db`, `app` (exists), `*` (everyone) or `-` (nobody), with `other/` or `*/` before it for the namespaces.
fn selector(text: &str, namespace: &str) -> (Option<Vec<Name>>, LabelSelector) {
    let (namespaces, text) = match text.split_once('/') {
        Some(("*", rest)) => (None, rest),
        Some((other, rest)) => (Some(other.split('+').map(name).collect()), rest),
        None => (Some(vec![name(namespace)]), text),
    };
    let all = match text {
        "*" => vec![],
        "-" => vec![Expr { key: name(""), op: Op::Never }],
        _ => vec![expr(text)],
    };
    (namespaces, LabelSelector { all })
}

fn expr(text: &str) -> Expr {
    match (text.split_once("!="), text.split_once('=')) {
        (Some((key, value)), _) => Expr { key: name(key), op: Op::NotIn(vec![name(value)]) },
        (_, Some((key, value))) => Expr { key: name(key), op: Op::In(value.split('|').map(name).collect()) },
        _ => Expr { key: name(text), op: Op::Exists },
    }
}

fn written<'a>(words: impl Iterator<Item = &'a str>) -> Written {
    let mut it = Written { namespace: "default".to_owned(), ..Written::default() };
    for word in words {
        let mut fields = word.split(':');
        let kind = fields.next().unwrap();
        let fields: Vec<&str> = fields.collect();
        let term = |text: &str, namespace: &str| {
            let (who, key) = text.split_once('@').expect("a term is written who@key");
            let (namespaces, selector) = selector(who, namespace);
            AffinityTerm { namespaces, selector, topology_key: name(key) }
        };
        match (kind, &fields[..]) {
            ("in", [namespace]) => it.namespace = (*namespace).to_owned(),
            ("taint", [key]) => {
                it.taints.push(Taint { key: name(key), value: name(""), effect: TaintEffect::NoSchedule });
            }
            ("softtaint", [key]) => {
                it.taints.push(Taint {
                    key: name(key),
                    value: name(""),
                    effect: TaintEffect::PreferNoSchedule,
                });
            }
            ("tolerate", [key]) => {
                it.shape.tolerations.push(Toleration { key: Some(name(key)), value: None, effect: None });
            }
            ("on", [text]) => it.shape.node.all.push(expr(text)),
            ("near", [text]) => it.shape.pods.affinity.push(term(text, &it.namespace)),
            ("away", [text]) => it.shape.pods.anti_affinity.push(term(text, &it.namespace)),
            ("like", [weight, text]) => {
                it.shape.pods.preferred.push((weight.parse().unwrap(), term(text, &it.namespace)));
            }
            ("spread" | "softly", [skew, text, rest @ ..]) => {
                let term = term(text, &it.namespace);
                let min = rest.iter().find_map(|word| word.strip_prefix("min="));
                it.shape.pods.spread.push(SpreadRule {
                    topology_key: term.topology_key,
                    max_skew: skew.parse().unwrap(),
                    required: kind == "spread",
                    selector: term.selector,
                    namespace: name(&it.namespace),
                    min_domains: min.map(|n| n.parse().unwrap()),
                    honour_node_rules: !rest.contains(&"everynode"),
                    honour_taints: rest.contains(&"taints"),
                });
            }
            (label, []) => {
                let (key, value) = label.split_once('=').expect("a label is written key=value");
                it.labels.insert(name(key), name(value));
            }
            _ => panic!("unknown word {word}"),
        }
    }
    it
}

struct Case {
    company: Company,
    nodes: Vec<String>,
    asked: GuestId,
}

fn case(text: &str) -> Case {
    let mut company = Company::new();
    let mut nodes: Vec<String> = Vec::new();
    let mut asked = None;
    for line in text.split(';') {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap();
        let subject = if kind == "ask" { "" } else { words.next().unwrap() };
        let it = written(words);
        let at = nodes.iter().position(|n| n == subject);
        let mut register = |it: &Written| {
            company.register(&name(&it.namespace), &Arc::new(it.labels.clone()), &Arc::new(it.shape.clone()))
        };
        match kind {
            "node" => {
                nodes.push(subject.to_owned());
                let id = NodeId::new(nodes.len() as u32 - 1);
                company.put_node(id, &name(subject), &it.labels, &it.taints);
            }
            "pod" | "gone" => {
                let guest = register(&it);
                let node = NodeId::new(at.expect("the node is written first") as u32);
                company.add(guest, node);
                if kind == "gone" {
                    company.leave(guest, node);
                }
            }
            "ask" => asked = Some(register(&it)),
            _ => panic!("unknown line {line}"),
        }
    }
    Case { company, nodes, asked: asked.expect("a case asks") }
}

impl Case {
    fn each<T: ToString>(&self, answer: impl Fn(NodeId) -> T) -> String {
        let each = self.nodes.iter().enumerate();
        each.map(|(i, n)| format!("{n}:{}", answer(NodeId::new(i as u32)).to_string()))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let case = case(text);
    let found = case.each(|node| match case.company.filter(case.asked, node) {
        Ok(()) => "yes",
        Err(NodeReason::PodAffinity) => "near",
        Err(NodeReason::PodAntiAffinity) => "away",
        Err(NodeReason::TopologySpread) => "spread",
        Err(_) => "?",
    });
    assert_eq!(found, expected, "{text}");
    let silent = case.company.is_silent(case.asked);
    assert!(
        !silent || !expected.split(' ').any(|word| !word.ends_with(":yes")),
        "silent, but refused: {text}"
    );
}

#[track_caller]
fn check_score(text: &str, expected: &str) {
    let case = case(text);
    assert_eq!(case.each(|node| case.company.score(case.asked, node)), expected, "{text}");
}

const ZONES: &str = "node a zone=x host=a; node b zone=x host=b; node c zone=y host=c; node d host=d";

#[test]
fn affinity() {
    let check = |pods: &str, expected: &str| check(&format!("{ZONES}; {pods}"), expected);
    check("pod a app=db; ask app=web near:app=db@zone", "a:yes b:yes c:near d:near");
    check("pod a app=db; ask app=web near:app=db@host", "a:yes b:near c:near d:near");
    // Another namespace is another crowd, unless the term says so.
    check("pod a app=db in:other; ask app=web near:app=db@zone", "a:near b:near c:near d:near");
    check("pod a app=db in:other; ask app=web near:other/app=db@zone", "a:yes b:yes c:near d:near");
    check("pod a app=db in:other; ask app=web near:*/app=db@zone", "a:yes b:yes c:near d:near");
    check("pod a app=db in:other; ask app=web near:one+two/app=db@zone", "a:near b:near c:near d:near");
    // One pod has to match all terms; two halves do not help.
    check("pod a app=db tier=1; ask near:app=db@zone near:tier=1@zone", "a:yes b:yes c:near d:near");
    check("pod a app=db; pod b tier=1; ask near:app=db@zone near:tier=1@zone", "a:near b:near c:near d:near");
    check("pod a app=db tier=1; ask near:app=db@zone near:tier=1@host", "a:yes b:near c:near d:near");
    // A pod that nobody can reach by the key is not there.
    check("pod d app=db; ask near:app=db@zone", "a:near b:near c:near d:near");
    check("pod a app=db; ask near:-@zone", "a:near b:near c:near d:near");
    check("pod a app=db; ask near:*@zone", "a:yes b:yes c:near d:near");
    check("pod a app=db; ask near:app@zone", "a:yes b:yes c:near d:near");
    check("pod a app=db; pod c x=y; ask near:app!=db@zone", "a:near b:near c:yes d:near");
}

#[test]
fn first_of_its_kind() {
    let check = |pods: &str, expected: &str| check(&format!("{ZONES}; {pods}"), expected);
    check("ask app=db near:app=db@zone", "a:yes b:yes c:yes d:near");
    check("pod c app=db; ask app=db near:app=db@zone", "a:near b:near c:yes d:near");
    // One that no domain of the key holds does not hinder the start.
    check("pod d app=db; ask app=db near:app=db@zone", "a:yes b:yes c:yes d:near");
    // It holds a domain of one of the keys, so the group has begun.
    check("pod d app=db; ask app=db near:app=db@zone near:app=db@host", "a:near b:near c:near d:near");
    // It does not match all of its own terms.
    check("ask app=db near:app=db@zone near:tier=1@zone", "a:near b:near c:near d:near");
    check("ask app=db in:other near:default/app=db@zone", "a:near b:near c:near d:near");
}

#[test]
fn anti_affinity() {
    let check = |pods: &str, expected: &str| check(&format!("{ZONES}; {pods}"), expected);
    check("pod a app=db; ask app=db away:app=db@zone", "a:away b:away c:yes d:yes");
    check("pod a app=db; ask app=db away:app=db@host", "a:away b:yes c:yes d:yes");
    check("pod a app=db; pod c tier=1; ask away:app=db@host away:tier=1@zone", "a:away b:yes c:away d:yes");
    // In the other direction: those who are there shun the one who asks.
    check("pod a app=web away:app=db@zone; ask app=db", "a:away b:away c:yes d:yes");
    check("pod a app=web away:app=db@zone; ask app=web", "a:yes b:yes c:yes d:yes");
    check("pod a app=web in:other away:app=db@zone; ask app=db", "a:yes b:yes c:yes d:yes");
    check("pod a app=web in:other away:*/app=db@zone; ask app=db", "a:away b:away c:yes d:yes");
    check("pod d app=web away:app=db@zone; ask app=db", "a:yes b:yes c:yes d:yes");
    // One that is about to leave is still there for affinity.
    check("gone a app=db; ask app=db away:app=db@host", "a:away b:yes c:yes d:yes");
    check("gone a app=db; ask app=db near:app=db@host", "a:yes b:near c:near d:near");
    // Affinity is named first where both refuse.
    check("pod a app=db; ask near:app=web@host away:app=db@host", "a:near b:near c:near d:near");
}

#[test]
fn spread() {
    let nodes = "node a zone=x host=a; node b zone=x host=b; node c zone=y host=c pool=p; node d host=d";
    let check = |pods: &str, expected: &str| check(&format!("{nodes}; {pods}"), expected);
    check("ask app=db spread:1:app=db@zone", "a:yes b:yes c:yes d:spread");
    check("pod a app=db; ask app=db spread:1:app=db@zone", "a:spread b:spread c:yes d:spread");
    check("pod a app=db; pod b app=db; ask app=db spread:2:app=db@zone", "a:spread b:spread c:yes d:spread");
    check("pod a app=db; pod c app=db; ask app=db spread:1:app=db@zone", "a:yes b:yes c:yes d:spread");
    check("pod a app=db; ask app=db spread:1:app=db@host", "a:spread b:yes c:yes d:yes");
    // One that is not among those spread adds nothing itself.
    check("pod a app=db; ask app=web spread:1:app=db@zone", "a:yes b:yes c:yes d:spread");
    check("pod a app=db; pod a app=db; ask app=web spread:1:app=db@zone", "a:spread b:spread c:yes d:spread");
    // Other namespaces and those about to leave do not count.
    check("pod a app=db in:other; ask app=db spread:1:app=db@zone", "a:yes b:yes c:yes d:spread");
    check("gone a app=db; ask app=db spread:1:app=db@zone", "a:yes b:yes c:yes d:spread");
    // Fewer domains than wanted: the least is zero.
    check(
        "pod a app=db; pod c app=db; ask app=db spread:1:app=db@zone:min=3",
        "a:spread b:spread c:spread d:spread",
    );
    check("pod a app=db; pod c app=db; ask app=db spread:1:app=db@zone:min=2", "a:yes b:yes c:yes d:spread");
    // A selector for everyone counts nobody.
    check("pod a app=db; pod a app=db; ask app=db spread:1:*@zone", "a:yes b:yes c:yes d:spread");
    check("pod a app=db; pod a app=db; ask app=db spread:1:-@zone", "a:yes b:yes c:yes d:spread");
    // Nodes without all the keys are no ground: d is not the empty domain of the host rule.
    check(
        "pod d app=db; pod d app=db; ask app=db spread:1:app=db@zone spread:1:app=db@host",
        "a:yes b:yes c:yes d:spread",
    );
    check(
        "pod a app=db; pod b app=db; pod c app=db; ask app=db spread:9:app=db@zone spread:1:app=db@host",
        "a:yes b:yes c:yes d:spread",
    );
}

#[test]
fn spread_policies() {
    let nodes =
        "node a zone=x pool=p; node b zone=y pool=p; node c zone=z taint:t; node e zone=w pool=p softtaint:s";
    let check = |pods: &str, expected: &str| check(&format!("{nodes}; {pods}"), expected);
    let full = "pod a app=db; pod b app=db; pod e app=db";
    // c is empty and holds the others back, unless it is left out by the node rules or its taint.
    check(&format!("{full}; ask app=db spread:1:app=db@zone"), "a:spread b:spread c:yes e:spread");
    check(&format!("{full}; ask app=db on:pool=p spread:1:app=db@zone"), "a:yes b:yes c:yes e:yes");
    check(
        &format!("{full}; ask app=db on:pool=p spread:1:app=db@zone:everynode"),
        "a:spread b:spread c:yes e:spread",
    );
    check(&format!("{full}; ask app=db spread:1:app=db@zone:taints"), "a:yes b:yes c:yes e:yes");
    check(
        &format!("{full}; ask app=db tolerate:t spread:1:app=db@zone:taints"),
        "a:spread b:spread c:yes e:spread",
    );
    // Pods on nodes that are left out do not count.
    check("pod c app=db; pod c app=db; ask app=db on:pool=p spread:1:app=db@zone", "a:yes b:yes c:yes e:yes");
    // Three domains are left, which is fewer than four.
    check(
        &format!("{full}; ask app=db on:pool=p spread:1:app=db@zone:min=4"),
        "a:spread b:spread c:yes e:spread",
    );
}

#[test]
fn liking() {
    let check_score = |pods: &str, expected: &str| check_score(&format!("{ZONES}; {pods}"), expected);
    check_score("pod a app=db; pod a app=db; pod c app=db; ask like:5:app=db@zone", "a:10 b:10 c:5 d:0");
    check_score("pod a app=db; ask like:-5:app=db@host like:2:app=db@zone", "a:-3 b:2 c:0 d:0");
    check_score("pod a app=db; ask like:5:app=db@zone like:5:app=db@zone", "a:10 b:10 c:0 d:0");
    check_score("pod a like:7:app=db@zone; ask app=db", "a:7 b:7 c:0 d:0");
    check_score("pod a like:-7:app=db@host; pod b like:3:app=db@zone; ask app=db", "a:-4 b:3 c:0 d:0");
    check_score("pod a near:app=db@zone; ask app=db", "a:1 b:1 c:0 d:0");
    check_score("pod a near:app=db@zone near:app=db@host; ask app=db", "a:2 b:1 c:0 d:0");
    // Each required term counts by itself, not all together.
    check_score("pod a near:app=db@zone near:tier=1@zone; ask app=db", "a:1 b:1 c:0 d:0");
    check_score("pod a away:app=db@zone; ask app=db", "a:0 b:0 c:0 d:0");
    check_score("pod a app=db like:4:app=db@host; ask app=db like:4:app=db@host", "a:8 b:0 c:0 d:0");
}

#[test]
fn required_affinity_may_weigh_nothing() {
    let mut company = Company::with_hard_affinity_weight(0);
    let node = NodeId::new(0);
    company.put_node(node, &name("a"), &[(name("zone"), name("x"))].into(), &[]);
    let it = written("app=db near:app=db@zone".split(' '));
    let guest = company.register(&name("default"), &Arc::new(it.labels), &Arc::new(it.shape));
    company.add(guest, node);
    assert_eq!(company.score(guest, node), 0);
    assert!(company.is_indifferent(guest));
}

#[test]
fn spread_that_is_only_liked() {
    let case = case(&format!("{ZONES}; pod a app=db; pod a app=db; ask app=db softly:1:app=db@zone"));
    assert_eq!(
        case.each(|node| format!("{:?}", case.company.filter(case.asked, node).is_ok())),
        "a:true b:true c:true d:true"
    );
    // Two domains, so each of the two pods costs ln 4 = 1.386.
    let score = case.each(|node| format!("{:?}", case.company.spread_score(case.asked, node)));
    assert_eq!(score, "a:Some(-2772) b:Some(-2772) c:Some(0) d:None");
    let all: Vec<NodeId> = (0..4).map(NodeId::new).collect();
    assert_eq!(case.company.spread_scores(case.asked, &all), [0, 0, 100, 0]);
    // Without d and c there is one domain only, and everyone is alike.
    assert_eq!(case.company.spread_scores(case.asked, &all[..2]), [100, 100]);
}

#[test]
fn logarithms() {
    for n in [1_u64, 2, 3, 4, 7, 10, 100, 5002, 1_000_003, u64::from(u32::MAX) + 2] {
        let exact = (n as f64).ln();
        let found = ln(n) as f64 / f64::from(1_u32 << 31) / 2.0;
        assert!((exact - found).abs() < 1e-8, "ln {n} is {exact}, found {found}");
    }
}

#[test]
fn who_has_no_rules_is_silent_until_shunned() {
    let mut company = Company::new();
    let (plain, labels) = (Arc::new(Shape::default()), Arc::new(Labels::from([(name("app"), name("db"))])));
    let guest = company.register(&name("default"), &labels, &plain);
    let twin = company.register(&name("default"), &Arc::new((*labels).clone()), &Arc::new(Shape::default()));
    assert_eq!(guest, twin);
    assert_ne!(company.register(&name("other"), &labels, &plain), guest);
    assert!(company.is_silent(guest) && company.is_indifferent(guest));
    let it = written("app=web away:app=db@zone".split(' '));
    let shunning = company.register(&name("default"), &Arc::new(it.labels), &Arc::new(it.shape));
    assert!(!company.is_silent(guest) && !company.is_silent(shunning));
    assert!(company.is_indifferent(guest));
    let it = written("app=web near:app=db@zone".split(' '));
    company.register(&name("default"), &Arc::new(it.labels), &Arc::new(it.shape));
    assert!(!company.is_indifferent(guest));
}

#[test]
fn what_was_never_added_is_removed_without_harm() {
    let mut case = case("node a zone=x; ask app=db away:app=db@zone");
    let (guest, node) = (case.asked, NodeId::new(0));
    case.company.remove(guest, node);
    case.company.remove(guest, NodeId::new(9));
    case.company.leave(guest, node);
    case.company.stay(guest, node);
    assert_eq!(case.company.filter(guest, node), Ok(()));
    case.company.add(guest, node);
    assert!(case.company.filter(guest, node).is_err());
}

#[test]
fn one_that_leaves_is_gone_for_good() {
    let mut case = case("node a zone=x; node b zone=y; ask app=db spread:1:app=db@zone");
    let (guest, node) = (case.asked, NodeId::new(0));
    case.company.add(guest, node);
    case.company.leave(guest, node);
    assert_eq!(case.company.filter(guest, node), Ok(()));
    case.company.remove(guest, node);
    assert_eq!(case.company.filter(guest, node), Ok(()));
    case.company.add(guest, node);
    assert_eq!(case.company.filter(guest, node), Err(NodeReason::TopologySpread));
    // Of two, one leaves and the other is removed: what remains is the one that leaves.
    case.company.add(guest, node);
    case.company.leave(guest, node);
    case.company.remove(guest, node);
    assert_eq!(case.company.filter(guest, node), Ok(()));
    // Two leave, one is gone, another comes: one stays, also after the node has moved.
    case.company.add(guest, node);
    case.company.leave(guest, node);
    case.company.remove(guest, node);
    case.company.add(guest, node);
    case.company.put_node(node, &name("a"), &[(name("zone"), name("z"))].into(), &[]);
    assert_eq!(case.company.filter(guest, node), Err(NodeReason::TopologySpread));
    case.company.remove(guest, node);
    assert_eq!(case.company.filter(guest, node), Ok(()));
}

#[test]
fn spread_rules_alike_on_other_ground_are_another_guest() {
    let mut company = Company::new();
    let mut guest = |text: &str| {
        let it = written(text.split(' '));
        company.register(&name("default"), &Arc::new(it.labels), &Arc::new(it.shape))
    };
    let (plain, pool) = (guest("spread:1:app=db@zone"), guest("on:pool=p spread:1:app=db@zone"));
    assert_ne!(plain, pool);
    assert_ne!(plain, guest("tolerate:t spread:1:app=db@zone"));
    // Without spread rules the ground is nothing to this module.
    assert_eq!(guest("away:app=db@zone"), guest("on:pool=p away:app=db@zone"));
}

// The plain recount: pods in a list, nodes with labels, every question answered from scratch in the words of the upstream rules.

#[derive(Clone, Debug)]
struct PlainPod {
    spec: usize,
    node: usize,
    leaving: bool,
}

struct Plain<'a> {
    specs: &'a [Written],
    nodes: &'a [Option<(Labels, Vec<Taint>)>],
    pods: &'a [PlainPod],
}

fn matches(term: &AffinityTerm, pod: &Written) -> bool {
    term.namespaces.as_ref().is_none_or(|names| names.iter().any(|n| **n == *pod.namespace))
        && term.selector.matches(&pod.labels)
}

impl Plain<'_> {
    fn there(&self) -> impl Iterator<Item = (&Written, &Labels, &PlainPod)> {
        self.pods.iter().filter_map(|pod| {
            self.nodes[pod.node].as_ref().map(|(labels, _)| (&self.specs[pod.spec], labels, pod))
        })
    }

    fn filter(&self, spec: usize, node: usize) -> Result<(), NodeReason> {
        let none = Labels::new();
        let me = &self.specs[spec];
        let here = self.nodes[node].as_ref().map_or(&none, |(labels, _)| labels);
        let PodRules { affinity, anti_affinity, .. } = &me.shape.pods;
        let mut near: BTreeMap<(Name, Name), i64> = BTreeMap::new();
        let mut away = near.clone();
        let mut shunned = near.clone();
        for (pod, labels, _) in self.there() {
            let note = |counts: &mut BTreeMap<(Name, Name), i64>, term: &AffinityTerm| {
                if let Some(value) = labels.get(&term.topology_key) {
                    *counts.entry((term.topology_key.clone(), value.clone())).or_default() += 1;
                }
            };
            if affinity.iter().all(|term| matches(term, pod)) {
                affinity.iter().for_each(|term| note(&mut near, term));
            }
            anti_affinity.iter().filter(|term| matches(term, pod)).for_each(|term| note(&mut away, term));
            let theirs = pod.shape.pods.anti_affinity.iter();
            theirs.filter(|term| matches(term, me)).for_each(|term| note(&mut shunned, term));
        }
        let pair = |key: &Name| here.get(key).map(|value| (key.clone(), value.clone()));
        if affinity.iter().any(|term| pair(&term.topology_key).is_none()) {
            return Err(NodeReason::PodAffinity);
        }
        let all_there = affinity.iter().all(|term| near.contains_key(&pair(&term.topology_key).unwrap()));
        let begins = near.is_empty() && affinity.iter().all(|term| matches(term, me));
        if !all_there && !begins {
            return Err(NodeReason::PodAffinity);
        }
        let hits = |key: &Name| pair(key).is_some_and(|pair| away.contains_key(&pair));
        if anti_affinity.iter().any(|term| hits(&term.topology_key)) {
            return Err(NodeReason::PodAntiAffinity);
        }
        if here.iter().any(|(key, value)| shunned.contains_key(&(key.clone(), value.clone()))) {
            return Err(NodeReason::PodAntiAffinity);
        }
        let rules: Vec<&SpreadRule> = me.shape.pods.spread.iter().filter(|rule| rule.required).collect();
        for rule in &rules {
            let counts = self.spread_counts(me, rule, &rules);
            let Some(value) = here.get(&rule.topology_key) else { return Err(NodeReason::TopologySpread) };
            let few = counts.len() < rule.min_domains.unwrap_or(1) as usize;
            let least = if few { 0 } else { counts.values().min().copied().unwrap() };
            let itself = i64::from(rule.selector.matches(&me.labels));
            if counts.get(value).copied().unwrap_or(0) + itself - least > i64::from(rule.max_skew) {
                return Err(NodeReason::TopologySpread);
            }
        }
        Ok(())
    }

    fn spread_counts(&self, me: &Written, rule: &SpreadRule, rules: &[&SpreadRule]) -> BTreeMap<Name, i64> {
        let mut counts = BTreeMap::new();
        for (id, node) in self.nodes.iter().enumerate() {
            let Some((labels, taints)) = node else { continue };
            let tolerated = |taint: &Taint| {
                taint.effect == TaintEffect::PreferNoSchedule
                    || me.shape.tolerations.iter().any(|toleration| toleration.covers(taint))
            };
            if rules.iter().any(|rule| !labels.contains_key(&rule.topology_key))
                || (rule.honour_node_rules && !me.shape.node.allows(&node_name(id), labels))
                || (rule.honour_taints && !taints.iter().all(tolerated))
            {
                continue;
            }
            let n = self.pods.iter().filter(|pod| {
                let it = &self.specs[pod.spec];
                pod.node == id
                    && !pod.leaving
                    && !rule.selector.all.is_empty()
                    && *it.namespace == *rule.namespace
                    && rule.selector.matches(&it.labels)
            });
            *counts.entry(labels[&rule.topology_key].clone()).or_default() += n.count() as i64;
        }
        counts
    }

    fn score(&self, spec: usize, node: usize) -> i64 {
        let me = &self.specs[spec];
        let Some((here, _)) = &self.nodes[node] else { return 0 };
        let mut score = 0;
        for (pod, labels, _) in self.there() {
            let same = |term: &AffinityTerm| {
                labels
                    .get(&term.topology_key)
                    .is_some_and(|value| here.get(&term.topology_key) == Some(value))
            };
            let mut like = |weight: i32, term: &AffinityTerm, who: &Written| {
                if matches(term, who) && same(term) {
                    score += i64::from(weight);
                }
            };
            me.shape.pods.preferred.iter().for_each(|(weight, term)| like(*weight, term, pod));
            pod.shape.pods.preferred.iter().for_each(|(weight, term)| like(*weight, term, me));
            pod.shape.pods.affinity.iter().for_each(|term| like(1, term, me));
        }
        score
    }

    fn spread_scores(&self, spec: usize, nodes: &[usize]) -> Vec<i64> {
        let me = &self.specs[spec];
        let rules: Vec<&SpreadRule> = me.shape.pods.spread.iter().filter(|rule| !rule.required).collect();
        if rules.is_empty() {
            return vec![0; nodes.len()];
        }
        let labels = |node: usize| {
            let labels = &self.nodes[node].as_ref()?.0;
            rules.iter().all(|rule| labels.contains_key(&rule.topology_key)).then_some(labels)
        };
        let raw = |node: usize| {
            let here = labels(node)?;
            let mut cost = 0.0;
            for rule in &rules {
                let mut domains: Vec<&Name> = nodes
                    .iter()
                    .filter_map(|n| labels(*n))
                    .map(|labels| &labels[&rule.topology_key])
                    .collect();
                domains.sort();
                domains.dedup();
                let count =
                    self.spread_counts(me, rule, &rules).get(&here[&rule.topology_key]).copied().unwrap_or(0);
                cost += count as f64 * ((domains.len() + 2) as f64).ln() + f64::from(rule.max_skew - 1);
            }
            Some(cost.round() as i64)
        };
        let costs: Vec<Option<i64>> = nodes.iter().map(|node| raw(*node)).collect();
        let least = costs.iter().flatten().min().copied().unwrap_or(0);
        let most = costs.iter().flatten().max().copied().unwrap_or(0);
        let scale = |cost: &Option<i64>| {
            cost.map_or(0, |c| if most == 0 { 100 } else { 100 * (most + least - c) / most })
        };
        costs.iter().map(scale).collect()
    }
}

fn node_name(id: usize) -> Name {
    name(&format!("n{id}"))
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, Labels, Vec<Taint>),
    Drop(usize),
    Add(usize, usize),
    /// The pod at this place in the list, counted round.
    Remove(usize),
    Leave(usize),
    Stay(usize),
    /// A guest is registered before it is needed.
    Meet(usize),
    /// Those on no node are forgotten, save for one.
    Forget(usize),
}

const N_NODES: usize = 5;
const N_SPECS: usize = 6;

fn some_expr() -> impl Strategy<Value = Expr> {
    let key = prop::sample::select(vec!["app", "tier"]);
    let values = prop::collection::vec(prop::sample::select(vec!["1", "2"]).prop_map(name), 0..3);
    (key, values, 0..8).prop_map(|(key, values, op)| Expr {
        key: name(key),
        op: match op {
            0..=3 => Op::In(values),
            4 => Op::NotIn(values),
            5 => Op::Exists,
            6 => Op::Absent,
            _ => Op::Above(1),
        },
    })
}

fn some_term() -> impl Strategy<Value = AffinityTerm> {
    let namespaces = prop::option::of(prop::collection::vec(
        prop::sample::select(vec!["default", "other"]).prop_map(name),
        0..3,
    ));
    let all = prop::collection::vec(some_expr(), 0..3);
    let key = prop::sample::select(vec!["zone", "host", "rack"]);
    (namespaces, all, key).prop_map(|(namespaces, all, key)| AffinityTerm {
        namespaces,
        selector: LabelSelector { all },
        topology_key: name(key),
    })
}

fn some_spread() -> impl Strategy<Value = SpreadRule> {
    let min = prop::option::of(1..4);
    (some_term(), 1..3, any::<bool>(), min, any::<bool>(), any::<bool>()).prop_map(
        |(term, max_skew, required, min_domains, honour_node_rules, honour_taints)| SpreadRule {
            topology_key: term.topology_key,
            max_skew,
            required,
            selector: term.selector,
            namespace: name(""),
            min_domains,
            honour_node_rules,
            honour_taints,
        },
    )
}

fn some_labels(
    keys: &'static [&'static str],
    values: &'static [&'static str],
) -> impl Strategy<Value = Labels> {
    let value = prop::option::weighted(0.8, prop::sample::select(values));
    prop::collection::vec(value, keys.len()).prop_map(|values| {
        let pairs = keys.iter().zip(values);
        pairs.filter_map(|(key, value)| Some((name(key), name(value?)))).collect()
    })
}

fn some_rules() -> impl Strategy<Value = PodRules> {
    let few = |n| prop::collection::vec(some_term(), 0..n);
    let preferred = prop::collection::vec((-3..4, some_term()), 0..3);
    let spread = prop::collection::vec(some_spread(), 0..4);
    (few(3), few(3), preferred, spread).prop_map(|(affinity, anti_affinity, preferred, spread)| PodRules {
        affinity,
        anti_affinity,
        preferred,
        spread,
    })
}

fn some_spec() -> impl Strategy<Value = Written> {
    // Rules of one kind alone come often, for where everything is required nothing is ever allowed.
    let rules = (some_rules(), 0..6).prop_map(|(rules, kind)| match kind {
        0 => rules,
        1 => PodRules { affinity: rules.affinity, ..PodRules::default() },
        2 => PodRules { anti_affinity: rules.anti_affinity, ..PodRules::default() },
        3 => PodRules { spread: rules.spread, ..PodRules::default() },
        4 => PodRules { preferred: rules.preferred, ..PodRules::default() },
        _ => PodRules::default(),
    });
    let namespace = prop::sample::select(vec!["default", "other"]);
    (namespace, some_labels(&["app", "tier"], &["1", "2"]), rules, 0..3, any::<bool>()).prop_map(
        |(namespace, labels, mut pods, pool, tolerates)| {
            pods.spread.iter_mut().for_each(|rule| rule.namespace = name(namespace));
            let mut shape = Shape { pods, ..Shape::default() };
            match pool {
                0 => shape.node.all.push(expr("rack=1")),
                1 => {
                    let names = vec![Expr { key: name(""), op: Op::NotIn(vec![node_name(1)]) }];
                    shape.node.any = Some(vec![muster_model::NodeTerm { labels: vec![], names }]);
                }
                _ => {}
            }
            if tolerates {
                shape.tolerations.push(Toleration { key: Some(name("t")), value: None, effect: None });
            }
            Written { namespace: namespace.to_owned(), labels, taints: vec![], shape }
        },
    )
}

fn some_put() -> impl Strategy<Value = Step> {
    let labels = some_labels(&["zone", "rack"], &["1", "2"]);
    let effect =
        prop::option::of(prop::sample::select(vec![TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule]));
    (0..N_NODES, labels, prop::bool::weighted(0.9), effect).prop_map(|(node, mut labels, host, effect)| {
        if host {
            labels.insert(name("host"), node_name(node));
        }
        let taints =
            effect.into_iter().map(|effect| Taint { key: name("t"), value: name(""), effect }).collect();
        Step::Put(node, labels, taints)
    })
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => some_put(),
        1 => (0..N_NODES).prop_map(Step::Drop),
        6 => (0..N_SPECS, 0..N_NODES).prop_map(|(spec, node)| Step::Add(spec, node)),
        2 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Stay),
        1 => (0..N_SPECS).prop_map(Step::Meet),
        1 => (0..N_SPECS).prop_map(Step::Forget),
    ]
}

/// A company beside the list that it must agree with.
struct Pair {
    specs: Vec<Written>,
    guests: Vec<Option<GuestId>>,
    company: Company,
    nodes: Vec<Option<(Labels, Vec<Taint>)>>,
    pods: Vec<PlainPod>,
}

impl Pair {
    fn new(specs: Vec<Written>) -> Self {
        let guests = vec![None; specs.len()];
        Self { specs, guests, company: Company::new(), nodes: vec![None; N_NODES], pods: vec![] }
    }

    fn guest(&mut self, spec: usize) -> GuestId {
        let it = &self.specs[spec];
        let (labels, shape) = (Arc::new(it.labels.clone()), Arc::new(it.shape.clone()));
        *self.guests[spec].get_or_insert_with(|| self.company.register(&name(&it.namespace), &labels, &shape))
    }

    fn take(&mut self, step: &Step) {
        let id = |node: usize| NodeId::new(node as u32);
        let round = |n: usize, len: usize| (len > 0).then(|| n % len);
        match step {
            Step::Put(node, labels, taints) => {
                self.company.put_node(id(*node), &node_name(*node), labels, taints);
                self.nodes[*node] = Some((labels.clone(), taints.clone()));
            }
            Step::Drop(node) => {
                self.company.drop_node(id(*node));
                self.nodes[*node] = None;
            }
            Step::Add(spec, node) => {
                let guest = self.guest(*spec);
                self.company.add(guest, id(*node));
                self.pods.push(PlainPod { spec: *spec, node: *node, leaving: false });
            }
            Step::Remove(n) => {
                let Some(at) = round(*n, self.pods.len()) else { return };
                let pod = self.pods.swap_remove(at);
                let guest = self.guest(pod.spec);
                let stays =
                    |it: &PlainPod| !it.leaving && it.node == pod.node && self.guests[it.spec] == Some(guest);
                // Where some of the guest stay, one of those would be removed.
                if pod.leaving && self.pods.iter().any(stays) {
                    self.company.stay(guest, id(pod.node));
                }
                self.company.remove(guest, id(pod.node));
            }
            Step::Leave(n) | Step::Stay(n) => {
                let leaves = matches!(step, Step::Leave(_));
                let Some(at) = round(*n, self.pods.len()) else { return };
                if self.pods[at].leaving == leaves {
                    return;
                }
                self.pods[at].leaving = leaves;
                let PlainPod { spec, node, .. } = self.pods[at];
                let guest = self.guest(spec);
                if leaves { self.company.leave(guest, id(node)) } else { self.company.stay(guest, id(node)) }
            }
            Step::Meet(spec) => {
                self.guest(*spec);
            }
            Step::Forget(spared) => {
                let spared = self.guests[*spared];
                let placed = self.pods.iter().map(|pod| self.guests[pod.spec]);
                let kept: BTreeSet<GuestId> = placed.chain([spared]).flatten().collect();
                let ids = self.company.forget(|guest| Some(guest) == spared);
                for guest in &mut self.guests {
                    *guest = guest.and_then(|old| ids[old]);
                }
                assert_eq!(self.company.n_guests(), kept.len());
                assert_eq!(self.guests.iter().flatten().collect::<BTreeSet<_>>().len(), kept.len());
            }
        }
    }

    fn compare(&mut self) -> Result<(), TestCaseError> {
        let guests: Vec<GuestId> = (0..self.specs.len()).map(|spec| self.guest(spec)).collect();
        let plain = Plain { specs: &self.specs, nodes: &self.nodes, pods: &self.pods };
        let all: Vec<usize> = (0..N_NODES).collect();
        for (spec, guest) in guests.into_iter().enumerate() {
            for node in 0..N_NODES {
                let id = NodeId::new(node as u32);
                let found = self.company.filter(guest, id);
                prop_assert_eq!(&found, &plain.filter(spec, node), "filter of {} on {}", spec, node);
                prop_assert!(found.is_ok() || !self.company.is_silent(guest), "silent, but refused");
                let score = self.company.score(guest, id);
                prop_assert_eq!(score, plain.score(spec, node), "score of {} on {}", spec, node);
                prop_assert!(score == 0 || !self.company.is_indifferent(guest), "indifferent, but scored");
            }
            for some in [&all[..], &all[1..4]] {
                let ids: Vec<NodeId> = some.iter().map(|node| NodeId::new(*node as u32)).collect();
                prop_assert_eq!(
                    self.company.spread_scores(guest, &ids),
                    plain.spread_scores(spec, some),
                    "spread of {}",
                    spec
                );
            }
        }
        Ok(())
    }
}

/// All that is counted, for comparing one moment with another.
fn counts(company: &Company) -> Vec<(Tally, Tally, Tally, Levels)> {
    let each = |t: &Term| (t.here.clone(), t.shunning.clone(), t.liking.clone(), t.levels.clone());
    company.terms.values().map(each).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_a_recount(
        specs in prop::collection::vec(some_spec(), N_SPECS),
        puts in prop::collection::vec(some_put(), 4),
        steps in prop::collection::vec(some_step(), 0..40),
    ) {
        let mut pair = Pair::new(specs);
        for (i, step) in puts.iter().chain(&steps).enumerate() {
            pair.take(step);
            // Asking meets everyone, so it must not come too early each time.
            if i % 16 == 15 {
                pair.compare()?;
            }
        }
        pair.compare()?;
    }

    #[test]
    fn taking_back_restores_every_count(
        specs in prop::collection::vec(some_spec(), N_SPECS),
        steps in prop::collection::vec(some_step(), 0..40),
        tried in prop::collection::vec((0..N_SPECS, 0..N_NODES, 0..3_u8), 1..12),
    ) {
        let mut pair = Pair::new(specs);
        steps.iter().for_each(|step| pair.take(step));
        let guests: Vec<GuestId> = (0..N_SPECS).map(|spec| pair.guest(spec)).collect();
        let before = counts(&pair.company);
        let mut done = Vec::new();
        for (spec, node, kind) in tried {
            let (guest, node) = (guests[spec], NodeId::new(node as u32));
            let staying = pair.company.seat_mut(guest, node).is_some_and(|seat| seat.n > seat.n_leaving);
            match kind {
                1 if staying => pair.company.remove(guest, node),
                2 if staying => pair.company.leave(guest, node),
                0 => pair.company.add(guest, node),
                _ => continue,
            }
            done.push((guest, node, kind));
        }
        for (guest, node, kind) in done.into_iter().rev() {
            match kind {
                0 => pair.company.remove(guest, node),
                1 => pair.company.add(guest, node),
                _ => pair.company.stay(guest, node),
            }
        }
        prop_assert_eq!(counts(&pair.company), before);
        pair.compare()?;
    }
}
