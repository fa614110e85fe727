//! In and out of defaulting, one case per rule. Only the named part of the result is compared.

use serde_json::{Value, json};

use crate::{KubeVersion, default, find, json::at};

#[track_caller]
fn check(resource: &str, object: Value, path: &str, expected: Value) {
    let (group, rest) = resource.split_once('/').unwrap_or(("", resource));
    let (version, plural) = rest.split_once('/').unwrap_or(("v1", rest));
    let kind = find(KubeVersion::V1_36, group, version, plural).unwrap();
    let mut once = object;
    default(kind, &mut once);
    assert_eq!(at(&once, path), &expected, "{path} of {once}");
    let mut twice = once.clone();
    default(kind, &mut twice);
    assert_eq!(twice, once, "defaulting twice");
}

#[test]
fn a_whole_pod() {
    check(
        "pods",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 80}]}]}}),
        "spec",
        json!({
            "containers": [{
                "name": "c", "image": "a", "imagePullPolicy": "Always", "resources": {},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
        }),
    );
}

#[test]
fn pods() {
    let of_container = |container: Value, path: &str, expected: Value| {
        let pod = json!({"spec": {"containers": [container]}});
        let kind = find(KubeVersion::V1_36, "", "v1", "pods").unwrap();
        let mut pod = pod;
        default(kind, &mut pod);
        assert_eq!(at(&pod["spec"]["containers"][0], path), &expected);
    };
    of_container(
        json!({"resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "100m"}}}),
        "resources.requests",
        json!({"cpu": "100m", "memory": "1Gi"}),
    );
    of_container(
        json!({"livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5}}),
        "livenessProbe",
        json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 5, "timeoutSeconds": 1,
            "successThreshold": 1, "failureThreshold": 3}),
    );
    of_container(
        json!({"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        "env",
        json!([{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}}]),
    );
    of_container(
        json!({"env": [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}),
        "env",
        json!([{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}]),
    );
    of_container(
        json!({"resources": {"limits": {"cpu": "0.1234"}}}),
        "resources.limits",
        json!({"cpu": "124m"}),
    );
    check(
        "pods",
        json!({"spec": {"volumes": [{"name": "v"}]}}),
        "spec.volumes",
        json!([{"name": "v", "emptyDir": {}}]),
    );
    check(
        "pods",
        json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}),
        "spec.volumes",
        json!([{"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}]),
    );
    check(
        "pods",
        json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}),
        "spec.volumes",
        json!([{"name": "v", "hostPath": {"path": "/", "type": ""}}]),
    );
    check(
        "pods",
        json!({"spec": {"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]}}),
        "spec.containers",
        json!([{"name": "", "imagePullPolicy": "IfNotPresent", "resources": {},
            "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}]),
    );
    check(
        "pods",
        json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "2"}}}],
            "resources": {"limits": {"cpu": 4, "memory": "1Gi"}}}}),
        "spec.resources",
        json!({"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "3", "memory": "1Gi"}}),
    );
    check("pods", json!({"spec": {"serviceAccount": "a"}}), "spec.serviceAccountName", json!("a"));
}

#[test]
fn templates_get_less_than_pods() {
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "a:1",
        "resources": {"limits": {"cpu": 1}}}]}}}});
    check("apps/deployments", template.clone(), "spec.template.spec.enableServiceLinks", Value::Null);
    check("apps/deployments", template.clone(), "spec.template.spec.restartPolicy", json!("Always"));
    check(
        "apps/deployments",
        template.clone(),
        "spec.template.spec.schedulerName",
        json!("default-scheduler"),
    );
    check("apps/deployments", template, "spec.template.metadata", json!({}));
}

#[test]
fn kinds_that_make_pods() {
    check("apps/deployments", json!({}), "spec.replicas", json!(1));
    check("apps/deployments", json!({"spec": {"replicas": 0}}), "spec.replicas", json!(0));
    check("apps/deployments", json!({}), "spec.revisionHistoryLimit", json!(10));
    check("apps/deployments", json!({}), "spec.progressDeadlineSeconds", json!(600));
    check(
        "apps/deployments",
        json!({}),
        "spec.strategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
    );
    check(
        "apps/deployments",
        json!({"spec": {"strategy": {"type": "Recreate"}}}),
        "spec.strategy",
        json!({"type": "Recreate"}),
    );
    check(
        "apps/daemonsets",
        json!({}),
        "spec.updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
    );
    check(
        "apps/statefulsets",
        json!({}),
        "spec.updateStrategy",
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
    );
    check(
        "apps/statefulsets",
        json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}),
        "spec.updateStrategy",
        json!({"type": "OnDelete"}),
    );
    check(
        "apps/statefulsets",
        json!({}),
        "spec.persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    check("apps/statefulsets", json!({}), "spec.podManagementPolicy", json!("OrderedReady"));
    check(
        "apps/statefulsets",
        json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": "d"}}]}}),
        "spec.volumeClaimTemplates",
        json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"},
            "spec": {"resources": {}, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}]),
    );
    check("apps/replicasets", json!({}), "spec.replicas", json!(1));
    check("apps/replicasets", json!({}), "status", json!({"replicas": 0}));
    check(
        "replicationcontrollers",
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
        "spec.selector",
        json!({"a": "b"}),
    );
    check("batch/jobs", json!({"spec": {"parallelism": 3}}), "spec.completions", Value::Null);
    check(
        "batch/jobs",
        json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
        "metadata.labels",
        json!({"a": "b"}),
    );
    for (path, expected) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("manualSelector", json!(false)),
    ] {
        check("batch/jobs", json!({}), &format!("spec.{path}"), expected);
    }
    check(
        "batch/jobs",
        json!({"spec": {"backoffLimitPerIndex": 1}}),
        "spec.backoffLimit",
        json!(2_147_483_647),
    );
    check("batch/cronjobs", json!({}), "spec.concurrencyPolicy", json!("Allow"));
    check("batch/cronjobs", json!({}), "spec.successfulJobsHistoryLimit", json!(3));
    check("batch/cronjobs", json!({}), "spec.jobTemplate.spec.backoffLimit", Value::Null);
}

#[test]
fn other_kinds() {
    check(
        "services",
        json!({"spec": {"ports": [{"port": 80}]}}),
        "spec",
        json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]}),
    );
    check(
        "services",
        json!({"spec": {"type": "LoadBalancer"}}),
        "spec.allocateLoadBalancerNodePorts",
        json!(true),
    );
    check("services", json!({"spec": {"type": "NodePort"}}), "spec.externalTrafficPolicy", json!("Cluster"));
    check("services", json!({}), "status", json!({"loadBalancer": {}}));
    check(
        "services",
        json!({"spec": {"sessionAffinity": "ClientIP"}}),
        "spec.sessionAffinityConfig",
        json!({"clientIP": {"timeoutSeconds": 10800}}),
    );
    check("secrets", json!({"stringData": {"a": "hi"}}), "data", json!({"a": "aGk="}));
    check("secrets", json!({}), "type", json!("Opaque"));
    check("persistentvolumes", json!({}), "spec.persistentVolumeReclaimPolicy", json!("Retain"));
    check("nodes", json!({"spec": {"podCIDR": "10.0.0.0/24"}}), "spec.podCIDRs", json!(["10.0.0.0/24"]));
    check("nodes", json!({"status": {"capacity": {"cpu": 4}}}), "status.allocatable", json!({"cpu": "4"}));
    check(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": 2}, "min": {"memory": "1Mi"}}]}}),
        "spec.limits",
        json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "default": {"cpu": "2"},
            "defaultRequest": {"cpu": "2", "memory": "1Mi"}}]),
    );
    check("scheduling.k8s.io/priorityclasses", json!({}), "preemptionPolicy", json!("PreemptLowerPriority"));
    check("scheduling.k8s.io/priorityclasses", json!({}), "value", json!(0));
    check("scheduling.k8s.io/v1alpha2/podgroups", json!({}), "spec.disruptionMode", json!("Pod"));
    check("storage.k8s.io/storageclasses", json!({}), "volumeBindingMode", json!("Immediate"));
    check(
        "networking.k8s.io/networkpolicies",
        json!({"spec": {"egress": [{}]}}),
        "spec.policyTypes",
        json!(["Ingress", "Egress"]),
    );
    check(
        "rbac.authorization.k8s.io/rolebindings",
        json!({"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
        "subjects",
        json!([{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "s"}]),
    );
    check(
        "rbac.authorization.k8s.io/rolebindings",
        json!({}),
        "roleRef.apiGroup",
        json!("rbac.authorization.k8s.io"),
    );
    check("rbac.authorization.k8s.io/roles", json!({}), "rules", Value::Null);
    check(
        "resource.k8s.io/resourceclaims",
        json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}),
        "spec.devices.requests",
        json!([{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]),
    );
    check(
        "apiextensions.k8s.io/customresourcedefinitions",
        json!({"spec": {"names": {"kind": "Foo", "plural": "foos"}, "versions": [{"name": "v1", "storage": true}]}}),
        "spec.names",
        json!({"kind": "Foo", "plural": "foos", "singular": "foo", "listKind": "FooList"}),
    );
    check(
        "apiextensions.k8s.io/customresourcedefinitions",
        json!({}),
        "spec.conversion",
        json!({"strategy": "None"}),
    );
    check(
        "autoscaling/v2/horizontalpodautoscalers",
        json!({"spec": {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 5}}}}),
        "spec.behavior",
        json!({
            "scaleUp": {"stabilizationWindowSeconds": 5, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]},
            "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
        }),
    );
    check(
        "admissionregistration.k8s.io/validatingwebhookconfigurations",
        json!({"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "rules": [{}]}]}),
        "webhooks",
        json!([{"name": "a", "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
            "rules": [{"scope": "*"}], "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {},
            "objectSelector": {}, "timeoutSeconds": 10, "sideEffects": null, "admissionReviewVersions": null}]),
    );
    check("events", json!({}), "firstTimestamp", Value::Null);
    check("events", json!({}), "source", json!({}));
}

#[test]
fn blank_objects_have_only_what_is_always_written() {
    let blank =
        |group: &str, plural: &str| crate::blank(find(KubeVersion::V1_36, group, "v1", plural).unwrap());
    assert_eq!(blank("", "pods"), json!({"metadata": {}, "spec": {"containers": null}, "status": {}}));
    assert_eq!(blank("", "configmaps"), json!({"metadata": {}}));
    assert_eq!(
        blank("apps", "replicasets"),
        json!({
            "metadata": {},
            "spec": {"selector": null, "template": {"metadata": {}, "spec": {"containers": null}}},
            "status": {"replicas": 0},
        })
    );
}
