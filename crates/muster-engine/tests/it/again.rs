//! Who is sent away on trial and finds a place again: its own, if nobody else has got it meanwhile.

use crate::small::{NOON, amounts, asking, gang, leaf, node, one_gpu, pod, queue};
use muster_engine::Engine;
use muster_engine::audit::audit;
use muster_model::{
    Claim, ClaimUse, Cluster, Decisions, Device, DeviceAlternative, DeviceCount, DeviceName, DeviceReach,
    DeviceRequest, GPU, Group, Key, Min, PodState, Policy, Resource,
};
use std::sync::Arc;

fn device(name: &str) -> DeviceName {
    DeviceName { driver: "d".into(), pool: "node".into(), device: name.into() }
}

/// A node with three GPUs and these devices. Somebody runs on two of the GPUs, a gang that comes later takes the third in this cycle, and one
/// of high priority needs two: who runs has to go, and the other is sent away on trial and finds room again. The latter two claim a device.
fn crossing(devices: &[&str]) -> Cluster {
    let mut cluster = Cluster {
        now: NOON,
        nodes: vec![Arc::new(node("node", amounts(10_000, 1 << 30, 3 * GPU, 10)))],
        queues: vec![Arc::new(queue("team", None))],
        ..Cluster::default()
    };
    for name in devices {
        cluster.devices.push(Arc::new(Device {
            name: device(name),
            reach: DeviceReach::Node("node".into()),
            attributes: [].into(),
            counters: Vec::new(),
            counter_totals: Vec::new(),
            gpu: false,
            no_schedule: false,
        }));
    }
    for (name, priority, gpus, claims) in [("low", 1, 1, true), ("runs", 2, 2, false), ("high", 3, 2, true)] {
        let mut gang = gang(name, vec![leaf(1)]);
        gang.priority = priority;
        let mut shape = one_gpu();
        shape.requests.set(Resource::Gpu, gpus * GPU);
        if claims {
            let claim = Key::new("default", name);
            shape.claims.push(ClaimUse { name: "c".into(), claim: claim.clone() });
            let alternative = DeviceAlternative {
                name: "".into(),
                candidates: devices.iter().map(|name| device(name)).collect(),
                count: DeviceCount::Exactly(1),
                admin: false,
                gpu: false,
            };
            cluster.claims.push(Arc::new(Claim {
                key: claim,
                requests: vec![DeviceRequest { name: "r".into(), alternatives: vec![alternative] }],
                same: Vec::new(),
                allocation: None,
                reserved_for: Vec::new(),
                of_pod: Some(name.into()),
                queue: None,
                defect: None,
            }));
        }
        let mut pod = pod(name, name, shape);
        if name == "runs" {
            pod.state = PodState::Running;
            pod.node = Some("node".into());
        }
        cluster.gangs.push(Arc::new(gang));
        cluster.pods.push(Arc::new(pod));
    }
    cluster
}

/// What was decided, a line for each, sorted: `bind low b`, `evict runs`, `promise high a`.
fn lines(decisions: &Decisions) -> Vec<String> {
    let placed = decisions.binds.iter().map(|b| ("bind", &b.pod, &b.placement));
    let promised = decisions.pipelined.iter().map(|p| ("promise", &p.pod, &p.placement));
    let places = placed.chain(promised).map(|(what, pod, place)| {
        let devices: Vec<&str> = place.devices.iter().map(|(_, _, device)| &*device.device).collect();
        format!("{what} {} {}", pod.name, devices.join(","))
    });
    let evicted = decisions.evictions.iter().map(|e| format!("evict {}", e.pod.name));
    let mut lines: Vec<String> = evicted.chain(places).collect();
    lines.sort();
    lines
}

#[track_caller]
fn check(cluster: Cluster, expected: &[&str]) {
    let policy = Policy::default();
    let decisions = Engine::build(cluster.clone(), policy.clone()).0.cycle(cluster.now);
    assert_eq!(audit(&cluster, &policy, &decisions), []);
    assert_eq!(lines(&decisions), expected);
}

#[test]
fn a_device_is_promised_once() {
    check(crossing(&[]), &[]);
    check(crossing(&["a"]), &["evict runs", "promise high a"]);
    check(crossing(&["a", "b"]), &["evict runs", "promise high a", "promise low b"]);
    check(crossing(&["a", "b", "c"]), &["evict runs", "promise high a", "promise low b"]);
}

/// The same, but the gang that is sent away has a pod more, in these groups: (name, parent, minimum).
fn in_groups(groups: &[(&str, Option<u32>, Min)], of_low: &str, of_more: &str) -> Cluster {
    let mut cluster = crossing(&["a", "b"]);
    let low = Arc::make_mut(&mut cluster.gangs[0]);
    low.groups = groups
        .iter()
        .map(|&(name, parent, min)| Group { name: name.into(), parent, min, topology: None })
        .collect();
    Arc::make_mut(&mut cluster.pods[0]).group = Some(of_low.into());
    let mut more = pod("more", "low", asking(amounts(100, 1 << 20, 0, 1)));
    more.group = Some(of_more.into());
    cluster.pods.push(Arc::new(more));
    cluster
}

/// A pod that is only promised its place again takes along those that are of no use without it. Who comes back brings nobody that it can do
/// without.
#[test]
fn no_part_of_a_minimum_is_bound_alone() {
    let (all, one) = (Min::Children(None), Min::Children(Some(1)));
    let both = ["evict runs", "promise high a", "promise low b", "promise more "];
    check(in_groups(&[("leaf", None, Min::Pods(2))], "leaf", "leaf"), &both);
    check(in_groups(&[("leaf", None, Min::Pods(1))], "leaf", "leaf"), &both[..3]);
    let leaves = |need| [("root", None, need), ("a", Some(0), Min::Pods(1)), ("b", Some(0), Min::Pods(1))];
    check(in_groups(&leaves(all), "a", "b"), &both);
    check(in_groups(&leaves(one), "a", "b"), &both[..3]);
    // Both are needed in a group that the gang could do without.
    let spare = [
        ("root", None, one),
        ("inner", Some(0), all),
        ("a", Some(1), Min::Pods(1)),
        ("b", Some(1), Min::Pods(1)),
        ("spare", Some(0), Min::Pods(0)),
    ];
    check(in_groups(&spare, "a", "b"), &both);
}

/// Three GPUs and one that somebody is leaving, where one of high priority needs so many. A gang holds the three: its pods are in these groups,
/// or wait, and so many of its groups must be there.
fn groups_against(gpus: i64, need: u32, pods: &[(&str, &str, PodState)], mins: &[(&str, u32)]) -> Cluster {
    let mut cluster = crossing(&["a", "b"]);
    cluster.gangs.remove(1);
    let [_, leaving, high] = &mut cluster.pods[..] else { panic!("three pods") };
    let leaving = Arc::make_mut(leaving);
    (leaving.gang, leaving.state, leaving.shape) = (None, PodState::Releasing, Arc::new(one_gpu()));
    Arc::make_mut(&mut Arc::make_mut(high).shape).requests.set(Resource::Gpu, gpus * GPU);
    cluster.pods.remove(0);
    cluster.nodes = vec![Arc::new(node("node", amounts(10_000, 1 << 30, 4 * GPU, 10)))];
    let low = Arc::make_mut(&mut cluster.gangs[0]);
    let group = |name: &str, parent, min| Group { name: name.into(), parent, min, topology: None };
    low.groups = vec![group("root", None, Min::Children(Some(need)))];
    low.groups.extend(mins.iter().map(|&(name, min)| group(name, Some(0), Min::Pods(min))));
    for &(name, group, state) in pods {
        let mut pod = pod(name, "low", one_gpu());
        (pod.group, pod.state) = (Some(group.into()), state);
        pod.node = state.holds_room().then(|| "node".into());
        cluster.pods.push(Arc::new(pod));
    }
    cluster
}

/// Who is promised a place in this cycle makes no group whole: those that are whole without stay.
#[test]
fn a_promise_does_not_make_others_dispensable() {
    use PodState::{Pending, Running};
    let pods =
        |mixed| [("0", mixed, Running), ("1", mixed, Pending), ("2", "b", Running), ("3", "b", Running)];
    for mixed in ["a", "c"] {
        let cluster = groups_against(2, 1, &pods(mixed), &[(mixed, 2), ("b", 2)]);
        check(cluster, &["evict 0", "promise high a"]);
        // A group that needs nobody, and has nobody, is no loss.
        let cluster = groups_against(2, 2, &pods(mixed), &[(mixed, 2), ("b", 2), ("none", 0)]);
        check(cluster, &["evict 0", "promise high a"]);
        let cluster = groups_against(3, 1, &pods(mixed), &[(mixed, 2), ("b", 2)]);
        check(cluster, &["evict 0", "evict 2", "evict 3", "promise high a"]);
    }
}

/// Two of three groups must be there. Two are, a pod of the third comes in this cycle, and one of high priority takes the place of one that was
/// there: with the newcomer, who is only promised its place again, the gang would not be whole.
#[test]
fn a_newcomer_does_not_stand_for_who_was_there() {
    let mut cluster = crossing(&["a", "b"]);
    let low = Arc::make_mut(&mut cluster.gangs[0]);
    let group = |name: &str, parent, min| Group { name: name.into(), parent, min, topology: None };
    low.groups = vec![group("root", None, Min::Children(Some(2)))];
    low.groups.extend(["a", "b", "c"].map(|name| group(name, Some(0), Min::Pods(1))));
    let [newcomer, there, _] = &mut cluster.pods[..] else { panic!("three pods") };
    let newcomer = Arc::make_mut(newcomer);
    newcomer.group = Some("b".into());
    Arc::make_mut(&mut newcomer.shape).requests.set(Resource::Gpu, 0);
    let there = Arc::make_mut(there);
    (there.gang, there.group, there.shape) = (newcomer.gang.clone(), Some("c".into()), Arc::new(one_gpu()));
    let mut more = there.clone();
    (more.key.name, more.group) = ("more".into(), Some("a".into()));
    cluster.pods.push(Arc::new(more));
    check(cluster, &["evict more", "evict runs", "promise high a"]);
}

/// A gang that needs five pods and has three groups of two, one of which it could do without: with two groups it has four, and half a group is of no use
/// to it, so that it needs all three.
#[test]
fn a_group_that_is_needed_for_the_number_alone_comes_whole() {
    for (gpus, expected) in [(6, 6), (5, 0)] {
        let group = |name: &str, parent, min| Group { name: name.into(), parent, min, topology: None };
        let groups = vec![
            group("root", None, Min::Whole { pods: 5 }),
            group("either", Some(0), Min::Children(Some(1))),
            group("a", Some(1), Min::Pods(2)),
            group("b", Some(1), Min::Pods(2)),
            group("c", Some(0), Min::Pods(2)),
        ];
        let mut cluster = Cluster {
            now: NOON,
            nodes: vec![Arc::new(node("node", amounts(10_000, 1 << 30, gpus * GPU, 10)))],
            queues: vec![Arc::new(queue("team", None))],
            gangs: vec![Arc::new(gang("low", groups))],
            ..Cluster::default()
        };
        for name in ["a", "b", "c"] {
            for i in 0..2 {
                let mut pod = pod(&format!("{name}{i}"), "low", one_gpu());
                pod.group = Some(name.into());
                cluster.pods.push(Arc::new(pod));
            }
        }
        let decisions = Engine::build(cluster.clone(), Policy::default()).0.cycle(NOON);
        assert_eq!(audit(&cluster, &Policy::default(), &decisions), vec![]);
        assert_eq!(decisions.binds.len(), expected, "{gpus} GPUs");
    }
}

/// A gang that needs five pods and two of three groups of two: a group that it could spare would leave it with four, so that it loses all of them.
#[test]
fn a_group_is_not_spared_if_the_number_needs_it() {
    let pods: Vec<(String, &str)> = (0..6).map(|i| (i.to_string(), ["a", "b", "c"][i / 2])).collect();
    let pods: Vec<(&str, &str, PodState)> =
        pods.iter().map(|(name, group)| (&**name, *group, PodState::Running)).collect();
    let mut cluster = groups_against(2, 2, &pods, &[("a", 2), ("b", 2), ("c", 2)]);
    cluster.nodes = vec![Arc::new(node("node", amounts(10_000, 1 << 30, 6 * GPU, 10)))];
    let low = cluster.gangs.iter_mut().find(|gang| &*gang.key.name == "low").unwrap();
    let low = Arc::make_mut(low);
    low.groups[0].name = "either".into();
    for group in &mut low.groups {
        group.parent = Some(group.parent.map_or(0, |parent| parent + 1));
    }
    low.groups
        .insert(0, Group { name: "root".into(), parent: None, min: Min::Whole { pods: 5 }, topology: None });
    let decisions = Engine::build(cluster.clone(), Policy::default()).0.cycle(NOON);
    assert_eq!(audit(&cluster, &Policy::default(), &decisions), vec![]);
    assert_eq!(decisions.evictions.len(), 6);
}
