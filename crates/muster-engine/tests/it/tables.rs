//! What an engine keeps follows from what there is, not from all that there ever was.

use crate::small::{NOON, amounts, gang, leaf, node, one_gpu, pod, queue};
use crate::world::watched;
use muster_engine::{Engine, Tables};
use muster_generate::{apply, consequences};
use muster_model::{
    AffinityTerm, Change, Claim, ClaimUse, Cluster, DeviceAlternative, DeviceCount, DeviceRequest, Expr, GPU,
    Gang, HostPort, Key, LabelSelector, Op, Pod, Policy, Span, VolumeNeed, VolumeUse,
};
use std::sync::Arc;

const GANGS: u32 = 20;
const ROUNDS: u32 = 30;

/// Two nodes that stay.
fn beginning() -> Cluster {
    let room = || amounts(100_000, 1 << 40, 16 * GPU, 100);
    Cluster {
        now: NOON,
        nodes: ["a", "b"].map(|name| Arc::new(node(name, room()))).into(),
        queues: vec![Arc::new(queue("team", None))],
        ..Cluster::default()
    }
}

/// A gang of two that nobody was like before or will be again: its labels, whom it keeps away from, its volumes, and for some of
/// them a claim on devices that do not exist.
fn unlike_all(round: u32, i: u32) -> (Gang, Vec<Pod>, Option<Claim>) {
    let name = format!("g{round}-{i}");
    let own = |what: &str| Key::new("default", &*format!("{name}-{what}"));
    let claim = i.is_multiple_of(4).then(|| Claim {
        key: own("claim"),
        requests: vec![DeviceRequest {
            name: "r".into(),
            alternatives: vec![DeviceAlternative {
                name: "".into(),
                candidates: [].into(),
                count: DeviceCount::Exactly(1),
                admin: false,
                gpu: false,
            }],
        }],
        same: Vec::new(),
        allocation: None,
        reserved_for: Vec::new(),
        of_pod: None,
        queue: None,
        defect: None,
    });
    let pods = (0..2).map(|n| {
        let mut shape = one_gpu();
        let selector =
            LabelSelector { all: vec![Expr { key: "job".into(), op: Op::In(vec![name.as_str().into()]) }] };
        let away =
            AffinityTerm { namespaces: Some(vec!["default".into()]), selector, topology_key: "host".into() };
        if i.is_multiple_of(3) {
            shape.pods.anti_affinity.push(away);
        } else {
            shape.pods.preferred.push((1, away));
        }
        shape.volumes.push(VolumeUse {
            claim: own(&n.to_string()),
            need: VolumeNeed::Bound { reachable: Vec::new() },
            driver: None,
            one_pod: true,
        });
        let port = (round * GANGS + i) as u16;
        shape.ports.push(HostPort { address: "0.0.0.0".into(), protocol: "TCP".into(), port });
        shape.claims.extend(claim.iter().map(|c| ClaimUse { name: "c".into(), claim: c.key.clone() }));
        let mut pod = pod(&format!("{name}-{n}"), &name, shape);
        pod.labels =
            Arc::new([("job".into(), name.as_str().into()), ("index".into(), n.to_string().into())].into());
        pod
    });
    (gang(&name, vec![leaf(2)]), pods.collect(), claim)
}

/// The beginning of a round: a node that was never there, and gangs, in an order that differs from round to round.
fn arrivals(round: u32) -> Vec<Change> {
    let fresh = node(&format!("new-{round}"), amounts(100_000, 1 << 40, 8 * GPU, 100));
    let mut changes = vec![Change::PutNode(Arc::new(fresh))];
    for i in 0..GANGS {
        let (gang, pods, claim) = unlike_all(round, i);
        let put_gang = Change::PutGang(Arc::new(gang));
        let put_pods = pods.into_iter().map(|pod| Change::PutPod(Arc::new(pod)));
        if round.is_multiple_of(2) {
            changes.push(put_gang);
            changes.extend(put_pods);
        } else {
            changes.extend(put_pods);
            changes.push(put_gang);
        }
        changes.extend(claim.map(|claim| Change::PutClaim(Arc::new(claim))));
    }
    changes
}

/// Everything of a round goes but its first gangs, and those of the round before go too.
fn departures(world: &Cluster, round: u32) -> Vec<Change> {
    const STAY: u32 = 3;
    let stays: Vec<Key> = (0..STAY).map(|i| Key::new("default", &*format!("g{round}-{i}"))).collect();
    let goes = |key: &Key| !stays.contains(key);
    let node = format!("new-{}", round.saturating_sub(1));
    let mut changes = vec![
        // What was never there may be said to be gone.
        Change::DropGang(Key::new("default", "nobody")),
        Change::DropNode("nowhere".into()),
        Change::DropNode(node.as_str().into()),
    ];
    let pods = world.pods.iter().filter(|pod| pod.gang.as_ref().is_some_and(goes));
    let pods = pods.map(|pod| Change::DropPod(pod.key.clone()));
    let gangs =
        world.gangs.iter().filter(|gang| goes(&gang.key)).map(|gang| Change::DropGang(gang.key.clone()));
    let claims = world.claims.iter().map(|claim| Change::DropClaim(claim.key.clone()));
    match round % 3 {
        0 => changes.extend(pods.chain(gangs).chain(claims)),
        1 => changes.extend(claims.chain(gangs).chain(pods)),
        _ => changes.extend(gangs.chain(claims).chain(pods)),
    }
    changes
}

#[test]
fn tables_do_not_grow_with_what_is_gone() {
    let policy = Policy::default();
    let mut world = beginning();
    let (mut engine, _) = Engine::build(world.clone(), policy.clone());
    let tell = |engine: &mut Engine, world: &mut Cluster, changes: Vec<Change>| {
        apply(world, changes.clone());
        engine.apply(changes);
    };
    let (mut most, mut n_binds) = (Tables::default(), 0);
    for round in 0..ROUNDS {
        tell(&mut engine, &mut world, arrivals(round));
        // What it decides is what an engine decides that knows nothing of the past.
        let decisions = watched(&mut engine, &world, &policy).unwrap();
        n_binds += decisions.binds.len();
        let after = consequences(&world, &decisions);
        tell(&mut engine, &mut world, after);
        let going = departures(&world, round);
        tell(&mut engine, &mut world, going);
        watched(&mut engine, &world, &policy).unwrap();
        world.now = world.now + Span::seconds(1);
        if round == 5 {
            most = engine.tables();
        }
    }
    let Tables { gangs, pods, nodes, classes, rules, guests, claims } = engine.tables();
    let now = engine.tables();
    assert!(n_binds > 300, "{n_binds}");
    // As many as there were at a time, and of what is swept now and then no more than in the first rounds.
    assert_eq!((gangs, pods, nodes, claims), (most.gangs, most.pods, most.nodes, most.claims));
    let few = |n: usize| n <= 3 * (GANGS as usize) * 2 + 64;
    assert!(few(classes) && few(rules) && few(guests), "{now:?}");
    // When all is gone, hardly anything is kept.
    let all = departures(&world, ROUNDS);
    tell(&mut engine, &mut world, all);
    tell(
        &mut engine,
        &mut world,
        (0..ROUNDS).map(|n| Change::DropNode(format!("new-{n}").as_str().into())).collect(),
    );
    watched(&mut engine, &world, &policy).unwrap();
    let Tables { classes, rules, guests, claims, .. } = engine.tables();
    assert!(classes.max(rules).max(guests) <= 64 + nodes && claims == 0, "{:?}", engine.tables());
}
