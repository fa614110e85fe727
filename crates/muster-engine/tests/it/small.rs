//! Objects by hand, for tests that need few of them: each as plain as can be, in a queue named "team".

use muster_model::{
    Amounts, Conditions, GPU, Gang, Gpus, Group, Key, Min, Node, Pod, PodState, Preemptibility, Queue,
    Resource, Shape, Span, Time,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const NOON: Time = Time(1_767_268_800_000);

pub fn amounts(cpu: i64, memory: i64, gpus: i64, pods: i64) -> Amounts {
    [(Resource::Cpu, cpu), (Resource::Memory, memory), (Resource::Gpu, gpus), (Resource::Pods, pods)]
        .into_iter()
        .collect()
}

pub fn node(name: &str, allocatable: Amounts) -> Node {
    Node {
        name: name.into(),
        labels: [("host".into(), name.into())].into(),
        taints: Vec::new(),
        conditions: Conditions::default(),
        allocatable,
        gpus: Gpus { memory: Some(80_000), ..Gpus::default() },
        numa: None,
        attach_limits: BTreeMap::new(),
        images: BTreeMap::new(),
        load: None,
    }
}

pub fn queue(name: &str, parent: Option<&str>) -> Queue {
    Queue {
        name: name.into(),
        uid: name.into(),
        display: None,
        parent: parent.map(Into::into),
        priority: 0,
        created: NOON,
        shares: BTreeMap::new(),
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
        reclaim: muster_model::Reclaim::default(),
        usage: BTreeMap::new(),
        tree: muster_model::Dialect::Kai,
        volcano: None,
    }
}

pub fn leaf(min: u32) -> Group {
    Group { name: "leaf".into(), parent: None, min: Min::Pods(min), topology: None }
}

pub fn gang(name: &str, groups: Vec<Group>) -> Gang {
    Gang {
        key: Key::new("default", name),
        uid: name.into(),
        queue: "team".into(),
        priority: 50,
        preemptibility: Preemptibility::Preemptible,
        created: NOON,
        groups,
        last_start: None,
        last_eviction: None,
        stale_since: None,
        preemption_delay: Span::ZERO,
        staleness_grace: None,
        declared_end: None,
        volcano: None,
    }
}

pub fn pod(name: &str, gang: &str, shape: Shape) -> Pod {
    Pod {
        key: Key::new("default", name),
        uid: name.into(),
        gang: Some(Key::new("default", gang)),
        group: None,
        created: NOON,
        state: PodState::Pending,
        node: None,
        shape: Arc::new(shape),
        labels: Arc::default(),
        rank: 0,
        task_priority: None,
        gpu_groups: Vec::new(),
        gpus: Vec::new(),
        zones: Vec::new(),
        nominated: None,
        volcano: None,
    }
}

pub fn asking(requests: Amounts) -> Shape {
    Shape { requests, ..Shape::default() }
}

pub fn one_gpu() -> Shape {
    asking(amounts(100, 1 << 20, GPU, 1))
}
