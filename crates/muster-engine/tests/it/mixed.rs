//! Laws of clusters where KAI's gangs and Volcano's live side by side, on small random ones: no node is overbooked whoever places the pods, neither takes
//! from the other, and a dialect of which there is nothing changes nothing for the other.

use crate::volcano::{ALL, NOW, World, cluster, policy, world};
use muster_engine::{Engine, audit};
use muster_model::{
    Bound, Cluster, Decisions, Dialect, Gang, Key, Name, Pod, PodState, Policy, Queue, Resource, Share,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Volcano's part under the names that another system's objects have.
fn of_volcano(world: &World) -> Cluster {
    let mut all = cluster(world);
    let queue = |name: &Name| -> Name { format!("volcano/{name}").into() };
    for slot in &mut all.queues {
        *slot = Arc::new(Queue { name: queue(&slot.name), ..Queue::clone(slot) });
    }
    for slot in &mut all.gangs {
        *slot = Arc::new(Gang { key: of(&slot.key), queue: queue(&slot.queue), ..Gang::clone(slot) });
    }
    for slot in &mut all.pods {
        let key = Key::new("ns", format!("v-{}", slot.key.name));
        *slot = Arc::new(Pod { key, gang: slot.gang.as_ref().map(of), ..Pod::clone(slot) });
    }
    all
}

fn of(key: &Key) -> Key {
    Key::new(key.namespace.clone(), format!("volcano/{}", key.name))
}

/// The same kind of gangs by KAI's rules, under the same names, in what the others leave of the nodes.
fn of_kai(world: &World, beside: &Cluster) -> Cluster {
    let left = |name: &Name, cpu: i64| {
        let here = beside.pods.iter().filter(|p| p.node.as_ref() == Some(name));
        cpu - here.map(|p| p.shape.requests.get(&Resource::Cpu)).sum::<i64>()
    };
    let nodes =
        beside.nodes.iter().map(|n| left(&n.name, n.allocatable.get(&Resource::Cpu)) / 1000).collect();
    let mut all = cluster(&World { nodes, ..world.clone() });
    all.nodes.clear();
    for (slot, cpu) in all.queues.iter_mut().zip(&world.capability) {
        let share = Share {
            quota: Bound::At(cpu * 500),
            limit: Bound::At(cpu * 1000),
            weight: 1000,
            ..Share::default()
        };
        let free = Share { quota: Bound::Unlimited, weight: 1000, ..Share::default() };
        let shares = [(Resource::Cpu, share), (Resource::Memory, free), (Resource::Gpu, free)];
        *slot = Arc::new(Queue {
            shares: BTreeMap::from(shares),
            tree: Dialect::Kai,
            volcano: None,
            ..Queue::clone(slot)
        });
    }
    for slot in &mut all.gangs {
        *slot = Arc::new(Gang { volcano: None, ..Gang::clone(slot) });
    }
    for slot in &mut all.pods {
        *slot = Arc::new(Pod { volcano: None, ..Pod::clone(slot) });
    }
    all
}

fn together(a: &Cluster, b: &Cluster) -> Cluster {
    let mut all = a.clone();
    all.nodes.extend(b.nodes.iter().cloned());
    all.queues.extend(b.queues.iter().cloned());
    all.gangs.extend(b.gangs.iter().cloned());
    all.pods.extend(b.pods.iter().cloned());
    all
}

fn of_both() -> Policy {
    Policy { volcano: policy(&ALL, false).volcano, ..Policy::default() }
}

fn decide(cluster: &Cluster, policy: &Policy) -> Decisions {
    Engine::build(cluster.clone(), policy.clone()).0.cycle(NOW)
}

/// What follows from decisions, a cycle later.
fn next(cluster: &Cluster, decisions: &Decisions) -> Cluster {
    let mut next = cluster.clone();
    for slot in &mut next.pods {
        let pod = Arc::make_mut(slot);
        if let Some(bind) = decisions.binds.iter().find(|b| b.pod == pod.key) {
            pod.state = PodState::Running;
            pod.node = Some(bind.placement.node.clone());
        }
        if decisions.evictions.iter().any(|e| e.pod == pod.key) {
            pod.state = PodState::Pending;
            pod.node = None;
        }
    }
    next
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// The auditor has nothing against what both decide, in several cycles in a row: room, gangs, queues, and who takes from whom.
    #[test]
    fn nothing_is_booked_twice_and_nobody_takes_from_the_other(v in world(), k in world()) {
        let volcano = of_volcano(&v);
        let mut cluster = together(&volcano, &of_kai(&k, &volcano));
        let policy = of_both();
        for _ in 0..3 {
            let decisions = decide(&cluster, &policy);
            prop_assert_eq!(audit::audit(&cluster, &policy, &decisions), vec![]);
            cluster = next(&cluster, &decisions);
        }
    }

    /// Volcano's queues and settings mean nothing where no gang is Volcano's.
    #[test]
    fn without_gangs_of_volcano_kai_decides_as_if_alone(v in world(), k in world()) {
        let mut volcano = of_volcano(&v);
        volcano.gangs.clear();
        volcano.pods.clear();
        let mixed = together(&volcano, &of_kai(&k, &volcano));
        let mut alone = mixed.clone();
        alone.queues.retain(|queue| queue.volcano.is_none());
        prop_assert_eq!(decide(&mixed, &of_both()), decide(&alone, &Policy::default()));
    }

    /// KAI's queues and settings mean nothing where no gang is KAI's.
    #[test]
    fn without_gangs_of_kai_volcano_decides_as_if_alone(v in world(), k in world()) {
        let volcano = of_volcano(&v);
        let mut kai = of_kai(&k, &volcano);
        kai.gangs.clear();
        kai.pods.clear();
        let mixed = together(&volcano, &kai);
        prop_assert_eq!(decide(&mixed, &of_both()), decide(&volcano, &policy(&ALL, false)));
    }

    /// The order of the input does not matter, nor whether gangs come before their pods: the books are opened late or early.
    #[test]
    fn told_in_any_order_both_decide_the_same(v in world(), k in world()) {
        let volcano = of_volcano(&v);
        let one = together(&volcano, &of_kai(&k, &volcano));
        let changes = one.clone().into_changes();
        let mut engine = Engine::new(of_both());
        engine.apply(changes.into_iter().rev());
        prop_assert_eq!(engine.cycle(NOW), decide(&one, &of_both()));
    }
}
