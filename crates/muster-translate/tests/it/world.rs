//! Random objects of every kind, from few names so that they meet.

use proptest::prelude::*;
use serde_json::{Value, json};

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c"])
}

fn one_of(values: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(values)
}

fn object(
    api: &'static str,
    kind: &'static str,
    rest: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    (name(), prop::sample::select(vec!["n", "m"]), rest).prop_map(move |(name, namespace, mut rest)| {
        rest["apiVersion"] = json!(api);
        rest["kind"] = json!(kind);
        rest["metadata"]["name"] = json!(name);
        if !matches!(
            kind,
            "Node"
                | "Queue"
                | "Topology"
                | "PriorityClass"
                | "PersistentVolume"
                | "StorageClass"
                | "CSINode"
                | "NodeResourceTopology"
                | "Namespace"
                | "ResourceSlice"
                | "DeviceClass"
        ) {
            rest["metadata"]["namespace"] = json!(namespace);
        }
        rest
    })
}

/// How far a pod is.
fn statuses() -> Vec<Value> {
    let at = |time: &str| json!({"phase": "Running", "startTime": time});
    vec![
        json!({}),
        json!({"phase": "Running"}),
        at("2025-12-31T23:00:00Z"),
        at("2025-12-31T23:30:00Z"),
        json!({"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-12-31T22:30:00Z"}]}),
        json!({"phase": "Succeeded", "startTime": "2025-12-31T23:00:00Z"}),
    ]
}

/// An object that means something, or a little less.
pub(crate) fn any_object() -> impl Strategy<Value = Value> {
    let pool = || one_of(vec![json!({}), json!({"kai.scheduler/node-pool": "x"})]);
    let node = (pool(), 0..3_i64, any::<bool>()).prop_map(|(labels, gpus, cordoned)| {
        json!({"metadata": {"labels": labels}, "spec": {"unschedulable": cordoned}, "status": {"allocatable": {"cpu": 4, "nvidia.com/gpu": gpus.to_string()}}})
    });
    let pod = (
        one_of(vec![
            json!({}),
            json!({"pod-group-name": "a"}),
            json!({"pod-group-name": "b", "gpu-fraction": "0.5"}),
            json!({"kai.scheduler/numa-placement-observed": "[{\"zone\":\"z\",\"amount\":{\"cpu\":1}}]"}),
            json!({"gpu-memory": "zero"}),
            json!({"kai.scheduler/skip-podgrouper": "true"}),
        ]),
        one_of(vec![
            json!({}),
            json!({"kai.scheduler/subgroup-name": "s"}),
            json!({"team": "x"}),
            json!({"kai.scheduler/node-pool": "x"}),
            json!({"grove.io/podgang": "a", "grove.io/podclique": "s"}),
            json!({"runai-gpu-group": "g"}),
            json!({"runai-gpu-group": "g", "app": "kai-resource-reservation"}),
        ]),
        one_of(vec![
            json!({}),
            json!({"nodeName": "a"}),
            json!({"nodeName": "a", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}),
            json!({"schedulerName": "other", "nodeName": "b"}),
            json!({"volumes": [{"persistentVolumeClaim": {"claimName": "a"}}, {"configMap": {"name": "a"}}]}),
            json!({"resourceClaims": [{"name": "r", "resourceClaimName": "a"}]}),
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "z", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "x"}}}]}}}),
        ]),
        one_of(statuses()),
        one_of(vec![json!(null), json!("2025-12-31T23:59:55Z")]),
    )
        .prop_map(|(annotations, labels, mut spec, status, deleted)| {
            if spec.get("schedulerName").is_none() {
                spec["schedulerName"] = json!("kai-scheduler");
            }
            json!({"metadata": {"annotations": annotations, "labels": labels, "deletionTimestamp": deleted}, "spec": spec, "status": status})
        });
    let foreign_pod = (
        one_of(vec![
            json!("t9k-scheduler"),
            json!("koord-scheduler"),
            json!("kai-scheduler"),
            json!("volcano"),
        ]),
        one_of(vec![
            json!({}),
            json!({"gang.scheduling.koordinator.sh/name": "a", "gang.scheduling.koordinator.sh/min-available": "2"}),
            json!({"gang.scheduling.koordinator.sh/name": "b", "gang.scheduling.koordinator.sh/min-available": "1",
                   "gang.scheduling.koordinator.sh/groups": "[\"n/a\",\"n/b\"]"}),
            json!({"scheduling.k8s.io/group-name": "a"}),
        ]),
        one_of(vec![
            json!({}),
            json!({"scheduler.tensorstack.dev/group-name": "a", "scheduler.tensorstack.dev/role": "r"}),
            json!({"scheduler.tensorstack.dev/group-name": "a", "pod-group.scheduling.sigs.k8s.io": "b"}),
            json!({"scheduler.tensorstack.dev/queue": "b", "quota.scheduling.koordinator.sh/name": "c"}),
        ]),
        one_of(vec![
            json!({}),
            json!({"nodeName": "a", "priority": 7}),
            json!({"schedulingGroup": {"podGroupName": "a"}, "priorityClassName": "a"}),
            json!({"workloadRef": {"name": "a", "podGroup": "g", "podGroupReplicaKey": "1"}}),
            json!({"containers": [{"resources": {"requests": {"cpu": "3"}}}]}),
        ]),
        one_of(statuses()),
        (any::<bool>(), any::<bool>()),
    )
        .prop_map(|(scheduler, annotations, mut labels, mut spec, status, (pooled, owned))| {
            spec["schedulerName"] = scheduler;
            if pooled {
                labels["kai.scheduler/node-pool"] = json!("x");
            }
            let owners = if owned { json!([{"controller": true, "uid": "owner"}]) } else { json!(null) };
            json!({"metadata": {"annotations": annotations, "labels": labels, "ownerReferences": owners},
                "spec": spec, "status": status})
        });
    // Any object, of the default shard or of another.
    let of_a_shard = |objects: Vec<Value>| {
        (one_of(objects), any::<bool>()).prop_map(|(mut object, pooled)| {
            if pooled {
                object["metadata"]["labels"]["kai.scheduler/node-pool"] = json!("x");
            }
            object
        })
    };
    let volcano_group = of_a_shard(vec![
        json!({"metadata": {}, "spec": {"minMember": 2, "queue": "b"}}),
        json!({"metadata": {}, "spec": {"minMember": 1}}),
    ]);
    let pod_gang = of_a_shard(vec![
        json!({"metadata": {"labels": {"grove.io/scheduler-backend": "muster"}},
            "spec": {"podgroups": [{"name": "s", "minReplicas": 1}]}}),
        json!({"metadata": {"labels": {"grove.io/scheduler-backend": "kai"}}}),
    ]);
    let t9k_group = of_a_shard(vec![
        json!({"metadata": {}, "spec": {"minMember": 2, "queue": "b"}}),
        json!({"metadata": {}, "spec": {"minMember": 3, "roles": [{"name": "r", "minMember": 1}]}}),
    ]);
    let t9k_queue = one_of(vec![
        json!({"metadata": {}, "spec": {"quota": {"requests": {"cpu": "2"}}, "preemptible": false}}),
        json!({"metadata": {}, "spec": {"closed": true, "nodeSelector": {"matchLabels": {"x": "y"}}}}),
    ]);
    let koordinator_group = of_a_shard(vec![
        json!({"metadata": {}, "spec": {"minMember": 2}}),
        json!({"metadata": {"annotations": {"gang.scheduling.koordinator.sh/groups": "[\"n/a\",\"n/b\"]"}}, "spec": {"minMember": 1}}),
        json!({"metadata": {"annotations": {"gang.scheduling.koordinator.sh/match-policy": "only-waiting"}}, "spec": {"minMember": 1}}),
    ]);
    let quota = one_of(vec![
        json!({"metadata": {}, "spec": {"min": {"cpu": 1}, "max": {"cpu": 4}}}),
        json!({"metadata": {"labels": {"quota.scheduling.koordinator.sh/parent": "a"}}, "spec": {"max": {"cpu": 2}}}),
        json!({"metadata": {"annotations": {"quota.scheduling.koordinator.sh/namespaces": "[\"n\"]"}}, "spec": {"min": {"cpu": 1}, "max": {"cpu": 3}}}),
    ]);
    let kubernetes_group = of_a_shard(vec![
        json!({"metadata": {}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 3}}),
        json!({"metadata": {}, "spec": {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}}),
    ]);
    let workload = of_a_shard(vec![
        json!({"metadata": {}, "spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]}}),
        json!({"metadata": {}, "spec": {"podGroups": [{"name": "h", "policy": {"basic": {}}}]}}),
    ]);
    let pod_group = (
        pool(),
        one_of(vec![
            json!({"queue": "a", "minMember": 2}),
            json!({"queue": "b", "priorityClassName": "a", "subGroups": [{"name": "s", "minMember": 1}, {"name": "t", "minMember": 1}]}),
            json!({"subGroups": [{"name": "s", "parent": "s"}]}),
            json!({"topologyConstraint": {"topology": "a", "requiredTopologyLevel": "rack"}}),
        ]),
        one_of(vec![
            json!({}),
            json!({"muster.dev/members": "2"}),
            json!({"kai.scheduler/last-start-timestamp": "2025-12-31T22:00:00Z"}),
        ]),
    )
        .prop_map(|(labels, spec, annotations)| {
            json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
        });
    let queue = (pool(), 0..3_i64).prop_map(|(labels, quota)| {
        json!({"metadata": {"labels": labels}, "spec": {"resources": {"gpu": {"quota": quota}}}})
    });
    let topology = one_of(vec![
        json!({"metadata": {}, "spec": {"levels": [{"nodeLabel": "x/rack", "alias": "rack"}]}}),
        json!({"metadata": {}, "spec": {"levels": [{"nodeLabel": "rack"}]}}),
    ]);
    let class = (0..200_i64, any::<bool>())
        .prop_map(|(value, default)| json!({"metadata": {}, "value": value, "globalDefault": default}));
    let bind_request = one_of(vec![
        json!({"metadata": {}, "spec": {"podName": "a", "selectedNode": "a"}}),
        json!({"metadata": {}, "spec": {"podName": "b", "selectedNode": "c", "selectedGPUGroups": ["g"]}}),
        json!({"metadata": {}, "spec": {"selectedNode": "b"}, "status": {"phase": "Failed"}}),
        json!({"metadata": {"uid": "u"}, "spec": {"podName": "a", "selectedNode": "a"}, "status": {"phase": "Failed"}}),
        json!({"metadata": {}, "spec": {"selectedNode": "b", "backoffLimit": 1}, "status": {"phase": "Failed", "failedAttempts": 1}}),
        json!({"metadata": {}, "spec": {"selectedNode": "a", "resourceClaimAllocations": [
            {"name": "r", "allocation": {"devices": {"results": [{"request": "r", "driver": "gpu.x", "pool": "b", "device": "e"}]}}}]}}),
    ]);
    let volume_claim = one_of(vec![
        json!({"metadata": {}, "spec": {"volumeName": "a"}}),
        json!({"metadata": {}, "spec": {"storageClassName": "a"}}),
    ]);
    let volume = one_of(vec![
        json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}, "spec": {"storageClassName": "a"}}),
        json!({"metadata": {}, "spec": {"csi": {"driver": "d"}}}),
    ]);
    let storage_class = one_of(vec![
        json!({"metadata": {}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}),
        json!({"metadata": {}, "provisioner": "p"}),
    ]);
    let csi_node = one_of(vec![
        json!({"metadata": {}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}]}}),
    ]);
    let zones = one_of(vec![
        json!({"metadata": {}, "zones": [{"name": "y", "type": "Node"}, {"name": "z", "type": "Node"}]}),
        json!({"metadata": {}, "zones": [{"name": "z", "type": "Node"}]}),
    ]);
    let namespace = one_of(vec![json!({"metadata": {"labels": {"team": "x"}}}), json!({"metadata": {}})]);
    let config_map = one_of(vec![json!({"metadata": {}})]);
    let gpu_topology = one_of(vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpu-topology"}, "data": {"t": "nodes: {a: {gpus: [{id: 0, nvlinks: [1]}]}}"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpu-topology", "namespace": "z"}, "data": {"t": "nodes: {a: {gpus: [{id: 1, nvlinks: [2]}]}}"}}),
    ]);
    let slice = (name(), 0..2_i64, one_of(vec![json!([{"name": "d"}]), json!([{"name": "d", "attributes": {"m": {"int": 1}}}, {"name": "e"}]), json!([])]), name())
        .prop_map(|(node, generation, devices, pool)| {
            json!({"metadata": {}, "spec": {"driver": "gpu.x", "nodeName": node, "pool": {"name": pool, "generation": generation}, "devices": devices}})
        });
    let device_class = one_of(vec![
        json!({"metadata": {}, "spec": {}}),
        json!({"metadata": {}, "spec": {"selectors": [{"cel": {"expression": "has(device.attributes['gpu.x'].m)"}}]}}),
    ]);
    let claim = (name(), one_of(vec![json!(null), json!({"devices": {"results": [{"request": "r", "driver": "gpu.x", "pool": "a", "device": "d"}]}})]))
        .prop_map(|(class, allocation)| {
            json!({"metadata": {}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class}}]}}, "status": {"allocation": allocation}})
        });
    prop_oneof![
        3 => object("v1", "Node", node),
        6 => object("v1", "Pod", pod),
        3 => object("scheduling.run.ai/v2alpha2", "PodGroup", pod_group),
        1 => object("scheduling.run.ai/v2", "Queue", queue),
        1 => object("kai.scheduler/v1alpha1", "Topology", topology),
        1 => object("scheduling.k8s.io/v1", "PriorityClass", class),
        2 => object("scheduling.run.ai/v1alpha2", "BindRequest", bind_request),
        1 => object("v1", "PersistentVolumeClaim", volume_claim),
        1 => object("v1", "PersistentVolume", volume),
        1 => object("storage.k8s.io/v1", "StorageClass", storage_class),
        1 => object("storage.k8s.io/v1", "CSINode", csi_node),
        1 => object("topology.node.k8s.io/v1alpha2", "NodeResourceTopology", zones),
        1 => object("v1", "Namespace", namespace),
        1 => object("v1", "ConfigMap", config_map),
        1 => gpu_topology,
        2 => object("resource.k8s.io/v1", "ResourceSlice", slice),
        1 => object("resource.k8s.io/v1", "DeviceClass", device_class),
        2 => object("resource.k8s.io/v1", "ResourceClaim", claim),
        4 => object("v1", "Pod", foreign_pod),
        1 => object("scheduler.tensorstack.dev/v1beta1", "PodGroup", t9k_group),
        1 => object("scheduler.tensorstack.dev/v1beta1", "Queue", t9k_queue),
        1 => object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", koordinator_group),
        1 => object("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", quota),
        1 => object("scheduling.k8s.io/v1alpha2", "PodGroup", kubernetes_group),
        1 => object("scheduling.k8s.io/v1alpha1", "Workload", workload),
        1 => object("scheduling.volcano.sh/v1beta1", "PodGroup", volcano_group),
        1 => object("scheduler.grove.io/v1alpha1", "PodGang", pod_gang),
    ]
}
