//! Places: no node is ever given more than it has, and what is required together is together.

use crate::world::{add_queue, cluster_queue, empty, quotas, workload};
use muster_admit::Settings;
use muster_admit::spec::{Node, SliceLayer, Topology, TopologyRequest};
use muster_model::{Name, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LEVELS: [&str; 3] = ["block", "rack", "kubernetes.io/hostname"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn nodes_hold_what_they_are_given(
        nodes in proptest::collection::vec((0..2_u8, 0..2_u8, 1..5_i64), 1..8),
        jobs in proptest::collection::vec((1..6_i32, 0..4_u8, 0..3_usize, 1..3_i32), 1..12),
    ) {
        let mut state = empty(Settings::default(), &["a"]);
        let levels: Vec<Name> = LEVELS.iter().map(|l| (*l).into()).collect();
        state.topologies.insert("t".into(), Topology { name: "t".into(), levels: levels.clone() });
        state.flavor_specs.get_mut("a").unwrap().topology = Some("t".into());
        let mut capacity: BTreeMap<Name, i64> = BTreeMap::new();
        let mut path: BTreeMap<Name, [Name; 3]> = BTreeMap::new();
        for (i, (block, rack, cpus)) in nodes.iter().enumerate() {
            let name: Name = format!("n{i}").into();
            let values = [format!("b{block}").into(), format!("b{block}-r{rack}").into(), name.clone()];
            capacity.insert(name.clone(), *cpus);
            path.insert(name.clone(), values.clone());
            state.nodes.insert(name.clone(), Node {
                labels: levels.iter().cloned().zip(values).collect(),
                name,
                taints: Vec::new(),
                usable: true,
                allocatable: [("cpu".into(), cpus * 1000), ("pods".into(), 10)].into(),
            });
        }
        add_queue(&mut state, cluster_queue("q", None, vec![quotas("a", 100, None, None)]));
        state.settle(Time(0));
        for (i, (pods, mode, level, slice)) in jobs.iter().enumerate() {
            let pods = pods * slice;
            let mut job = workload(&format!("w{i:02}"), "q", 0, i64::try_from(i).unwrap(), 1, pods);
            let named: Name = LEVELS[*level].into();
            let slices = || vec![SliceLayer { level: LEVELS[2].into(), size: Some(*slice) }];
            job.pod_sets[0].topology = Some(match mode {
                0 => TopologyRequest { required: Some(named), slices: slices(), ..TopologyRequest::default() },
                1 => TopologyRequest { preferred: Some(named), slices: slices(), ..TopologyRequest::default() },
                2 => TopologyRequest { unconstrained: true, ..TopologyRequest::default() },
                _ => TopologyRequest { required: Some(named), ..TopologyRequest::default() },
            });
            state.put_workload(job, Time(0));
        }
        let run = state.run(Time(1));
        let mut used: BTreeMap<Name, i64> = BTreeMap::new();
        for admitted in &run.admitted {
            let i: usize = admitted.key.name[1..].parse().unwrap();
            let (pods, mode, level, slice) = jobs[i];
            let places = admitted.reservation.pod_sets[0].topology.as_ref().unwrap();
            prop_assert_eq!(places.n_pods(), pods * slice);
            for (values, n) in &places.domains {
                *used.entry(values[0].clone()).or_default() += i64::from(*n);
                if mode <= 1 {
                    prop_assert_eq!(n % slice, 0, "slices are whole");
                }
            }
            if mode == 0 || mode == 3 {
                let mut domains: Vec<&Name> = places.domains.iter().map(|(v, _)| &path[&v[0]][level]).collect();
                domains.dedup();
                prop_assert_eq!(domains.len(), 1, "required together");
            }
        }
        for (node, pods) in used {
            prop_assert!(pods <= capacity[&node], "{} has {} pods", node, pods);
        }
    }
}

/// Nobody has a place in a topology without levels, and nobody is harmed by asking.
#[test]
fn a_topology_without_levels_has_no_place() {
    let requests = [
        TopologyRequest { required: Some("rack".into()), ..TopologyRequest::default() },
        TopologyRequest { unconstrained: true, ..TopologyRequest::default() },
        TopologyRequest {
            slices: vec![SliceLayer { level: "rack".into(), size: Some(1) }],
            ..TopologyRequest::default()
        },
    ];
    for request in requests {
        let mut state = empty(Settings::default(), &["a"]);
        state.topologies.insert("t".into(), Topology { name: "t".into(), levels: Vec::new() });
        state.flavor_specs.get_mut("a").unwrap().topology = Some("t".into());
        add_queue(&mut state, cluster_queue("q", None, vec![quotas("a", 100, None, None)]));
        state.settle(Time(0));
        let mut job = workload("w", "q", 0, 0, 1, 1);
        job.pod_sets[0].topology = Some(request);
        state.put_workload(job, Time(0));
        assert!(state.run(Time(1)).admitted.is_empty());
    }
}
