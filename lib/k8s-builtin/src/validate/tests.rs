//! An object and the errors it gets. Every case starts from a good object of its kind and merges a change into it.

use serde_json::{Value, json};

use super::*;
use crate::{KubeVersion, apply_priority, default, find, prepare_create, prepare_update, to_storage};

fn kind_of(resource: &str) -> &'static Kind {
    let (version, resource) = match resource.strip_prefix("1.35:") {
        Some(resource) => (KubeVersion::V1_35, resource),
        None => (KubeVersion::V1_36, resource),
    };
    let (group, rest) = resource.rsplit_once('/').unwrap_or(("", resource));
    let (group, api) = group.rsplit_once('@').unwrap_or((group, "v1"));
    find(version, group, api, rest).unwrap_or_else(|| panic!("no kind {resource}"))
}

/// A good object, as a client would send it.
fn good(resource: &str) -> Value {
    let template = |policy: &str| {
        json!({"metadata": {"labels": {"app": "a"}},
            "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}})
    };
    let mut object = match resource {
        "pods" | "1.35:pods" => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        "apps/deployments" | "apps/replicasets" | "apps/daemonsets" | "apps/statefulsets" => {
            json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template("Always")}})
        }
        "replicationcontrollers" => json!({"spec": {"template": template("Always")}}),
        "batch/jobs" => json!({"spec": {"template": template("Never")}}),
        "batch/cronjobs" => {
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template("Never")}}}})
        }
        "services" => json!({"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}),
        "persistentvolumeclaims" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "persistentvolumes" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/d"}}})
        }
        "autoscaling@v2/horizontalpodautoscalers" | "autoscaling/horizontalpodautoscalers" => {
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
        }
        "networking.k8s.io/ingresses" => {
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})
        }
        "rbac.authorization.k8s.io/roles" => {
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
        }
        "rbac.authorization.k8s.io/rolebindings" | "rbac.authorization.k8s.io/clusterrolebindings" => {
            json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]})
        }
        "storage.k8s.io/storageclasses" => json!({"provisioner": "example.com/p"}),
        "scheduling.k8s.io@v1alpha2/workloads" => {
            json!({"spec": {"podGroupTemplates": [{"name": "w", "schedulingPolicy": {"gang": {"minCount": 3}}}]}})
        }
        "1.35:scheduling.k8s.io@v1alpha1/workloads" => {
            json!({"spec": {"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 3}}}]}})
        }
        "scheduling.k8s.io@v1alpha2/podgroups" => {
            json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
        }
        "resource.k8s.io/resourceclaims" => {
            json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}})
        }
        "discovery.k8s.io/endpointslices" => {
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]})
        }
        "node.k8s.io/runtimeclasses" => json!({"handler": "h"}),
        "admissionregistration.k8s.io/validatingwebhookconfigurations" => json!({"webhooks": [{
            "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://a.example.com"}}]}),
        "apiextensions.k8s.io/customresourcedefinitions" => {
            json!({"metadata": {"name": "foos.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
        }
        _ => json!({}),
    };
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("x").to_owned();
    let mut meta = json!({"name": name, "uid": "u"});
    if kind_of(resource).namespaced {
        meta["namespace"] = json!("n");
    }
    object["metadata"] = meta;
    object
}

/// RFC 7396, with `path[idx]` not needed: lists are replaced.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key).or_insert(json!({})), value);
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn created(resource: &str, change: &Value) -> Value {
    let kind = kind_of(resource);
    let mut object = good(resource);
    merge(&mut object, change);
    let mut object = to_storage(kind, object);
    default(kind, &mut object);
    prepare_create(kind, &mut object);
    object
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(resource: &str, change: Value, expected: &[&str]) {
    let object = created(resource, &change);
    assert_eq!(texts(&validate_create(kind_of(resource), &object)), expected, "{object}");
}

#[track_caller]
fn check_update(resource: &str, before: Value, change: Value, expected: &[&str]) {
    let kind = kind_of(resource);
    let mut old = created(resource, &before);
    merge(&mut old, &json!({"metadata": {"resourceVersion": "1"}}));
    let mut new = old.clone();
    merge(&mut new, &change);
    default(kind, &mut new);
    prepare_update(kind, &mut new, &old);
    let errors = texts(&validate_update(kind, &new, &old));
    let first_lines: Vec<&str> = errors.iter().map(|text| text.lines().next().unwrap_or_default()).collect();
    assert_eq!(first_lines, expected, "{new}");
}

#[track_caller]
fn container(change: Value, expected: &[&str]) {
    let mut container = json!({"name": "c", "image": "i"});
    merge(&mut container, &change);
    check("pods", json!({"spec": {"containers": [container]}}), expected);
}

const GOOD: &[&str] = &[
    "pods",
    "1.35:pods",
    "apps/deployments",
    "apps/replicasets",
    "apps/daemonsets",
    "apps/statefulsets",
    "replicationcontrollers",
    "batch/jobs",
    "batch/cronjobs",
    "services",
    "nodes",
    "namespaces",
    "configmaps",
    "secrets",
    "resourcequotas",
    "limitranges",
    "serviceaccounts",
    "endpoints",
    "persistentvolumeclaims",
    "persistentvolumes",
    "autoscaling@v2/horizontalpodautoscalers",
    "autoscaling/horizontalpodautoscalers",
    "policy/poddisruptionbudgets",
    "networking.k8s.io/networkpolicies",
    "networking.k8s.io/ingresses",
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterrolebindings",
    "storage.k8s.io/storageclasses",
    "scheduling.k8s.io/priorityclasses",
    "scheduling.k8s.io@v1alpha2/workloads",
    "scheduling.k8s.io@v1alpha2/podgroups",
    "1.35:scheduling.k8s.io@v1alpha1/workloads",
    "coordination.k8s.io/leases",
    "discovery.k8s.io/endpointslices",
    "node.k8s.io/runtimeclasses",
    "resource.k8s.io/resourceclaims",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
    "apiextensions.k8s.io/customresourcedefinitions",
];

#[test]
fn good_objects_are_good_and_may_stay_as_they_are() {
    for resource in GOOD {
        check(resource, json!({}), &[]);
        check_update(resource, json!({}), json!({}), &[]);
    }
}

#[test]
fn metadata() {
    check(
        "pods",
        json!({"metadata": {"name": null}}),
        &["metadata.name: Required value: name or generateName is required"],
    );
    check(
        "pods",
        json!({"metadata": {"name": "A"}}),
        &[
            "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
           characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
           for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ],
    );
    check("pods", json!({"metadata": {"generateName": "a-"}}), &[]);
    check(
        "services",
        json!({"metadata": {"name": "a.b"}}),
        &["metadata.name: Invalid value: \"a.b\": must not contain dots"],
    );
    check(
        "namespaces",
        json!({"metadata": {"name": "a".repeat(64)}}),
        &[
            &format!(
                "metadata.name: Invalid value: \"{}\": must be no more than 63 characters",
                "a".repeat(64)
            ),
            &format!("metadata.labels: Invalid value: \"{}\": must be no more than 63 bytes", "a".repeat(64)),
        ]
        .map(|text| text as &str)
        .into_iter()
        .collect::<Vec<_>>(),
    );
    check(
        "nodes",
        json!({"metadata": {"namespace": "n"}}),
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
    check(
        "pods",
        json!({"metadata": {"labels": {"a b": "c"}}}),
        &[
            "metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
           must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
           validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ],
    );
    check(
        "pods",
        json!({"metadata": {"finalizers": ["a"]}}),
        &[
            "metadata.finalizers[0]: Invalid value: \"a\": name is neither a standard finalizer name nor is it fully qualified",
        ],
    );
    check(
        "pods",
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n"}]}}),
        &["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"],
    );
    check("rbac.authorization.k8s.io/roles", json!({"metadata": {"name": "System:a"}}), &[]);
    check(
        "rbac.authorization.k8s.io/roles",
        json!({"metadata": {"name": "a/b"}}),
        &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
    );
    check_update(
        "pods",
        json!({}),
        json!({"metadata": {"uid": "v"}}),
        &["metadata.uid: Invalid value: \"v\": field is immutable"],
    );
    check_update(
        "configmaps",
        json!({}),
        json!({"metadata": {"resourceVersion": null}}),
        &["metadata.resourceVersion: Invalid value: \"\": must be specified for an update"],
    );
    check(
        "configmaps",
        json!({"metadata": {"annotations": {"a": "x".repeat(300_000)}}}),
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}

#[test]
fn containers() {
    check("pods", json!({"spec": {"containers": null}}), &["spec.containers: Required value"]);
    container(json!({"name": null}), &["spec.containers[0].name: Required value"]);
    container(json!({"image": null}), &["spec.containers[0].image: Required value"]);
    container(
        json!({"image": " i"}),
        &["spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace"],
    );
    container(
        json!({"imagePullPolicy": "Sometimes"}),
        &[
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
           \"IfNotPresent\", \"Never\"",
        ],
    );
    container(
        json!({"ports": [{"containerPort": 0}, {"containerPort": 70000, "protocol": "X"}]}),
        &[
            "spec.containers[0].ports[0].containerPort: Required value",
            "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ],
    );
    container(
        json!({"ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]}),
        &["spec.containers[0].ports[1].name: Duplicate value: \"a\""],
    );
    container(
        json!({"env": [{"name": ""}, {"name": "a=b"}, {"name": "A B", "value": "x"}]}),
        &[
            "spec.containers[0].env[0].name: Required value",
            "spec.containers[0].env[1].name: Invalid value: \"a=b\": a valid environment variable name must consist only \
             of printable ASCII characters other than '='",
        ],
    );
    container(
        json!({"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}),
        &[
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.x\": error converting fieldPath: field label not supported: spec.x",
        ],
    );
    container(
        json!({"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}}]}),
        &[],
    );
    container(
        json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}]}),
        &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
    );
    container(
        json!({"livenessProbe": {}}),
        &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    );
    container(
        json!({"livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}}),
        &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
    );
    container(
        json!({"readinessProbe": {"httpGet": {"port": "Bad"}}}),
        &[
            "spec.containers[0].readinessProbe.httpGet.port: Invalid value: \"Bad\": must contain only alpha-numeric \
             characters (a-z, 0-9), and hyphens (-)",
        ],
    );
    let two = json!([{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]);
    check("pods", json!({"spec": {"containers": two}}), &["spec.containers[1].name: Duplicate value: \"c\""]);
    check(
        "pods",
        json!({"spec": {"initContainers": [{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]}}),
        &[
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
    check(
        "pods",
        json!({"spec": {"initContainers": [{"name": "c", "image": "i"}]}}),
        &["spec.initContainers[0].name: Duplicate value: \"c\""],
    );
}

#[test]
fn amounts_of_resources() {
    let resources =
        |resources: Value, expected: &[&str]| container(json!({ "resources": resources }), expected);
    resources(
        json!({"limits": {"cpu": 1}, "requests": {"cpu": 2}}),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ],
    );
    resources(
        json!({"requests": {"cpu": "-1"}}),
        &[
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ],
    );
    resources(
        json!({"limits": {"nvidia.com/gpu": "500m"}}),
        &[
            "spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: \"500m\": must be an integer",
            "spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: \"500m\": must be an integer",
        ],
    );
    resources(
        json!({"requests": {"nvidia.com/gpu": 1}}),
        &[
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ],
    );
    resources(
        json!({"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}}),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"1\": must be equal to nvidia.com/gpu limit of 2",
        ],
    );
    resources(
        json!({"requests": {"gpu": 1}}),
        &[
            "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully \
             qualified",
            "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
        ],
    );
    resources(
        json!({"limits": {"hugepages-2Mi": "2Mi"}}),
        &["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
    );
    resources(
        json!({"claims": [{"name": "g"}]}),
        &[
            "spec.containers[0].resources.claims[0]: Not found: \"g\": must be one of the names in pod.spec.resourceClaims \
           which is empty",
        ],
    );
    check(
        "pods",
        json!({"spec": {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}},
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}}}]}}),
        &[
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests \
           of 2",
        ],
    );
}

#[test]
fn volumes() {
    let volume =
        |volume: Value, expected: &[&str]| check("pods", json!({"spec": {"volumes": [volume]}}), expected);
    volume(json!({"name": ""}), &["spec.volumes[0].name: Required value"]);
    volume(json!({"name": "v", "secret": {}}), &["spec.volumes[0].secret.secretName: Required value"]);
    volume(
        json!({"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}),
        &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
    );
    volume(
        json!({"name": "v", "hostPath": {"path": "/a/../b"}}),
        &["spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
    );
    volume(
        json!({"name": "v", "configMap": {"name": "a", "defaultMode": 1000}}),
        &[
            "spec.volumes[0].configMap.defaultMode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both \
           inclusive",
        ],
    );
}

#[test]
fn scheduling_of_pods() {
    let spec = |spec: Value, expected: &[&str]| check("pods", json!({ "spec": spec }), expected);
    spec(
        json!({"tolerations": [{"operator": "Equal"}]}),
        &[
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \
           \"match all values and all keys\"",
        ],
    );
    spec(
        json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
        &[
            "spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
        ],
    );
    spec(
        json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "No"}]}),
        &[
            "spec.tolerations[0].effect: Unsupported value: \"No\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
           \"NoExecute\"",
        ],
    );
    spec(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must \
           have at least one node selector term",
        ],
    );
    let term = |requirement: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [requirement]}]}}}})
    };
    let base = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]";
    spec(
        term(json!({"key": "a", "operator": "In"})),
        &[&format!("{base}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'")],
    );
    spec(
        term(json!({"key": "a", "operator": "Is"})),
        &[&format!("{base}.operator: Invalid value: \"Is\": not a valid selector operator")],
    );
    spec(
        json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 0, "podAffinityTerm": {"topologyKey": "a"}}]}}}),
        &[
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be \
           in the range 1-100",
        ],
    );
    spec(
        json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "Maybe"}]}),
        &[
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"Maybe\": supported values: \
             \"DoNotSchedule\", \"ScheduleAnyway\"",
        ],
    );
    spec(
        json!({"schedulingGates": [{"name": "a/b"}, {"name": "a/b"}]}),
        &["spec.schedulingGates[1]: Duplicate value: \"a/b\""],
    );
    spec(
        json!({"schedulingGates": [{"name": "a/b"}], "nodeName": "n"}),
        &["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    );
    spec(
        json!({"nodeSelector": {"a": "b c"}}),
        &[
            "spec.nodeSelector: Invalid value: \"b c\": a valid label must be an empty string or consist of alphanumeric \
           characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
           'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ],
    );
    spec(
        json!({"schedulingGroup": {}}),
        &["spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`"],
    );
    spec(json!({"schedulingGroup": {"podGroupName": "g"}}), &[]);
    check("1.35:pods", json!({"spec": {"workloadRef": {"name": "w", "podGroup": "g"}}}), &[]);
    spec(
        json!({"restartPolicy": "Once"}),
        &[
            "spec.restartPolicy: Unsupported value: \"Once\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ],
    );
    spec(
        json!({"resourceClaims": [{"name": "a"}]}),
        &[
            "spec.resourceClaims[0]: Invalid value: {\"name\":\"a\"}: must specify one of: `resourceClaimName`, \
           `resourceClaimTemplateName`",
        ],
    );
}

const POD_UPDATE: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

#[test]
fn changed_pods() {
    let changed = |change: Value, expected: &[&str]| {
        check_update("pods", json!({}), json!({ "spec": change }), expected)
    };
    changed(json!({"nodeSelector": {"a": "b"}}), &[POD_UPDATE]);
    changed(json!({"nodeName": "n"}), &[POD_UPDATE]);
    changed(json!({"schedulingGroup": {"podGroupName": "g"}}), &[POD_UPDATE]);
    changed(json!({"activeDeadlineSeconds": 5}), &[]);
    changed(json!({"tolerations": [{"key": "a", "operator": "Exists"}]}), &[]);
    let image = json!([{"name": "c", "image": "j", "imagePullPolicy": "Always"}]);
    changed(json!({ "containers": image }), &[]);
    changed(
        json!({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}),
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    changed(
        json!({"schedulingGates": [{"name": "a/b"}]}),
        &[
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a/b'",
        ],
    );
    let tolerant = json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}});
    check_update(
        "pods",
        tolerant,
        json!({"spec": {"tolerations": null}}),
        &[
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ],
    );
    let gated = json!({"spec": {"schedulingGates": [{"name": "a/b"}], "nodeSelector": {"a": "b"}}});
    check_update(
        "pods",
        gated.clone(),
        json!({"spec": {"nodeSelector": {"c": "d"}, "schedulingGates": null}}),
        &[],
    );
    check_update(
        "pods",
        gated,
        json!({"spec": {"nodeSelector": {"a": "c"}}}),
        &[
            "spec.nodeSelector: Invalid value: {\"a\":\"c\"}: only additions to spec.nodeSelector are allowed (no mutations or \
           deletions)",
        ],
    );
}

#[test]
fn other_ways_to_change_a_pod() {
    let kind = kind_of("pods");
    let limits = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
    let mut old =
        created("pods", &json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": limits}]}}));
    merge(&mut old, &json!({"metadata": {"resourceVersion": "1"}}));
    let with_cpu = |amount: &str| {
        let mut new = old.clone();
        for part in ["limits", "requests"] {
            new["spec"]["containers"][0]["resources"][part]["cpu"] = json!(amount);
        }
        new
    };
    assert_eq!(texts(&validate_resize(&with_cpu("2"), &old)), [""; 0]);
    let mut burstable = with_cpu("2");
    burstable["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    assert_eq!(
        texts(&validate_resize(&burstable, &old)),
        ["spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing"]
    );
    let mut moved = old.clone();
    moved["spec"]["nodeName"] = json!("n");
    assert_eq!(
        texts(&validate_resize(&moved, &old)),
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
    let mut debugged = old.clone();
    debugged["spec"]["ephemeralContainers"] =
        json!([{"name": "d", "image": "i", "targetContainerName": "c"}]);
    default(kind, &mut debugged);
    assert_eq!(texts(&validate_ephemeral_update(&debugged, &old)), [""; 0]);
    assert_eq!(
        texts(&validate_ephemeral_update(&old, &debugged)),
        ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n"]
    );
    let mut status = old.clone();
    status["status"]["qosClass"] = json!("Burstable");
    assert_eq!(
        texts(&validate_status_update(kind, &status, &old)),
        ["status.qosClass: Invalid value: \"Burstable\": field is immutable"]
    );
    assert_eq!(
        texts(&validate_binding(&json!({"target": {"kind": "Pod"}}))),
        [
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
            "target.name: Required value"
        ]
    );
    assert_eq!(
        texts(&validate_scale(&json!({"spec": {"replicas": -1}}))),
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
    );
    assert!(apply_priority(&mut old.clone(), None).is_ok());
}

#[test]
fn kinds_that_make_pods() {
    check(
        "apps/deployments",
        json!({"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
        &[
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ],
    );
    check(
        "apps/deployments",
        json!({"spec": {"selector": null}}),
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ],
    );
    check(
        "apps/deployments",
        json!({"spec": {"selector": {"matchLabels": null}}}),
        &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    );
    check(
        "apps/deployments",
        json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}),
        &["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""],
    );
    check(
        "apps/deployments",
        json!({"spec": {"replicas": -1}}),
        &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    );
    check(
        "apps/deployments",
        json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}}),
        &[
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
        ],
    );
    check_update(
        "apps/deployments",
        json!({}),
        json!({"spec": {"selector": {"matchLabels": {"app": "a", "b": "c"}}, "template": {"metadata": {"labels": {"b": "c"}}}}}),
        &["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"a\",\"b\":\"c\"}}: field is immutable"],
    );
    check_update("apps/deployments", json!({}), json!({"spec": {"replicas": 5}}), &[]);
    check_update(
        "apps/statefulsets",
        json!({}),
        json!({"spec": {"serviceName": "s"}}),
        &[
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
           'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
           forbidden",
        ],
    );
    let mounted = json!({"spec": {
        "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}],
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}]}}}});
    check("apps/statefulsets", mounted, &[]);
    check(
        "batch/jobs",
        json!({"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}),
        &["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
    );
    check(
        "batch/jobs",
        json!({"spec": {"completionMode": "Indexed", "parallelism": 2}}),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
    check(
        "batch/jobs",
        json!({"spec": {"backoffLimitPerIndex": 1}}),
        &["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
    );
    check(
        "batch/jobs",
        json!({"spec": {"manualSelector": true}}),
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
        ],
    );
    check_update(
        "batch/jobs",
        json!({}),
        json!({"spec": {"completions": 3}}),
        &["spec.completions: Invalid value: 3: field is immutable"],
    );
    check_update("batch/jobs", json!({}), json!({"spec": {"parallelism": 3}}), &[]);
    check_update(
        "batch/jobs",
        json!({"spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2}}),
        json!({"spec": {"completions": 3, "parallelism": 3}}),
        &[],
    );
    let made = |uid: &str| json!({"app": "a", "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "x", "controller-uid": uid, "job-name": "x"});
    check_update(
        "batch/jobs",
        json!({}),
        json!({"metadata": {"uid": "v"}}),
        &[
            "metadata.uid: Invalid value: \"v\": field is immutable",
            &format!(
                "spec.template.metadata.labels[controller-uid]: Invalid value: {}: must be 'v'",
                made("u")
            ),
            &format!(
                "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Invalid value: {}: must be 'v'",
                made("u")
            ),
            "spec.selector: Invalid value: {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"u\"}}: `selector` not auto-generated",
        ],
    );
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    check_update("batch/jobs", json!({"spec": {"suspend": true}}), selector, &[]);
    check(
        "batch/cronjobs",
        json!({"spec": {"schedule": "* * *"}}),
        &["spec.schedule: Invalid value: \"* * *\": expected exactly 5 fields, found 3: [* * *]"],
    );
    check(
        "batch/cronjobs",
        json!({"spec": {"timeZone": "Nowhere/Land"}}),
        &["spec.timeZone: Invalid value: \"Nowhere/Land\": unknown time zone Nowhere/Land"],
    );
    check(
        "batch/cronjobs",
        json!({"metadata": {"name": "a".repeat(53)}}),
        &[&format!(
            "metadata.name: Invalid value: \"{}\": must be no more than 52 characters",
            "a".repeat(53)
        )],
    );
}

#[test]
fn core_kinds() {
    check("services", json!({"spec": {"ports": null}}), &["spec.ports: Required value"]);
    check(
        "services",
        json!({"spec": {"ports": [{"port": 1}, {"port": 2}]}}),
        &["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"],
    );
    check(
        "services",
        json!({"spec": {"type": "Magic"}}),
        &[
            "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
           \"NodePort\"",
        ],
    );
    check(
        "services",
        json!({"spec": {"clusterIP": "x"}}),
        &[
            "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ],
    );
    check("services", json!({"spec": {"clusterIP": "None", "ports": null}}), &[]);
    check_update(
        "services",
        json!({"spec": {"clusterIP": "10.0.0.1"}}),
        json!({"spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}}),
        &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"],
    );
    check(
        "configmaps",
        json!({"data": {"a b": "c"}}),
        &[
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
           (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ],
    );
    check_update(
        "configmaps",
        json!({"immutable": true, "data": {"a": "b"}}),
        json!({"data": {"a": "c"}}),
        &["data: Forbidden: field is immutable when `immutable` is set"],
    );
    check_update(
        "secrets",
        json!({}),
        json!({"type": "a/b"}),
        &["type: Invalid value: \"a/b\": field is immutable"],
    );
    check(
        "secrets",
        json!({"type": "kubernetes.io/tls"}),
        &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
    );
    check(
        "nodes",
        json!({"spec": {"taints": [{"key": "a", "effect": "No"}]}}),
        &[
            "metadata.taints[0].effect: Unsupported value: \"No\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
           \"NoExecute\"",
        ],
    );
    check_update(
        "nodes",
        json!({"spec": {"podCIDR": "10.0.0.0/24"}}),
        json!({"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}}),
        &["spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid"],
    );
    check(
        "persistentvolumeclaims",
        json!({"spec": {"accessModes": ["Any"], "resources": {"requests": null}}}),
        &[
            "spec.accessModes: Unsupported value: \"Any\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \
             \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            "spec.resources[storage]: Required value",
        ],
    );
    check_update(
        "persistentvolumeclaims",
        json!({}),
        json!({"spec": {"accessModes": ["ReadWriteMany"]}}),
        &[
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
           claims",
        ],
    );
    check(
        "resourcequotas",
        json!({"spec": {"hard": {"pods": "500m", "gpu": 1}}}),
        &[
            "spec.hard[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
            "spec.hard[gpu]: Invalid value: \"gpu\": must be a standard resource for quota",
            "spec.hard[pods]: Invalid value: \"500m\": must be an integer",
        ],
    );
    check(
        "resourcequotas",
        json!({"spec": {"scopes": ["BestEffort", "NotBestEffort"]}}),
        &["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"],
    );
    check(
        "limitranges",
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": 1}, "min": {"cpu": 2}}]}}),
        &[
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
            "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
        ],
    );
}

#[test]
fn other_groups() {
    let hpa = "autoscaling@v2/horizontalpodautoscalers";
    check(
        hpa,
        json!({"spec": {"maxReplicas": 1, "minReplicas": 2}}),
        &["spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`"],
    );
    check(
        hpa,
        json!({"spec": {"scaleTargetRef": {"kind": null}}}),
        &["spec.scaleTargetRef.kind: Required value"],
    );
    check(
        hpa,
        json!({"spec": {"metrics": [{"type": "Odd"}]}}),
        &[
            "spec.metrics[0].type: Unsupported value: \"Odd\": supported values: \"ContainerResource\", \"External\", \
           \"Object\", \"Pods\", \"Resource\"",
        ],
    );
    check(
        "policy/poddisruptionbudgets",
        json!({"spec": {"minAvailable": 1, "maxUnavailable": "10%"}}),
        &[
            "spec: Invalid value: {\"maxUnavailable\":\"10%\",\"minAvailable\":1}: minAvailable and maxUnavailable cannot be \
           both set",
        ],
    );
    check(
        "policy/poddisruptionbudgets",
        json!({"spec": {"minAvailable": "200%"}}),
        &["spec.minAvailable: Invalid value: \"200%\": must not be greater than 100%"],
    );
    check(
        "networking.k8s.io/networkpolicies",
        json!({"spec": {"ingress": [{"from": [{}]}]}}),
        &["spec.ingress[0].from[0]: Required value: must specify a peer"],
    );
    check(
        "networking.k8s.io/ingresses",
        json!({"spec": {"rules": [{"http": {"paths": [{"path": "a", "pathType": "Prefix", "backend": {}}]}}]}}),
        &[
            "spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path",
            "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
        ],
    );
    check(
        "rbac.authorization.k8s.io/roles",
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
        &["rules[0].verbs: Required value: verbs must contain at least one value"],
    );
    check_update(
        "rbac.authorization.k8s.io/rolebindings",
        json!({}),
        json!({"roleRef": {"name": "s"}}),
        &[
            "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"ClusterRole\",\"name\":\"s\"}: \
           cannot change roleRef",
        ],
    );
    check(
        "coordination.k8s.io/leases",
        json!({"spec": {"leaseDurationSeconds": 0}}),
        &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
    );
    check(
        "resource.k8s.io/resourceclaims",
        json!({"spec": {"devices": {"requests": [{"name": "r"}]}}}),
        &[
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ],
    );
    check(
        "storage.k8s.io/storageclasses",
        json!({"reclaimPolicy": "Keep"}),
        &["reclaimPolicy: Unsupported value: \"Keep\": supported values: \"Delete\", \"Retain\""],
    );
    check(
        "apiextensions.k8s.io/customresourcedefinitions",
        json!({"metadata": {"name": "a.b"}}),
        &["metadata.name: Invalid value: \"a.b\": must be spec.names.plural+\".\"+spec.group"],
    );
}

/// Lists of many small entries, each of which breaks a rule. No more errors are kept than anybody reads. Work that grew
/// with the square of the size would make this test take minutes.
#[test]
fn large_objects_take_little_time_and_memory() {
    const N: usize = 20_000;
    let many = |entry: fn(usize) -> Value| Value::Array((0..N).map(entry).collect());
    let pod = json!({"spec": {
        "containers": [{"name": "c", "image": "i",
            "ports": many(|idx| json!({"name": format!("p{idx}"), "hostPort": idx})),
            "volumeMounts": many(|idx| json!({"name": "v", "mountPath": idx.to_string()})),
            "volumeDevices": many(|idx| json!({"name": idx.to_string()})),
            "resources": {"claims": many(|idx| json!({"name": format!("c{}", idx / 2)}))}}],
        "volumes": many(|idx| json!({"name": format!("v{idx}")})),
        "tolerations": many(|idx| json!({"key": format!("k{idx}")})),
        "schedulingGates": many(|idx| json!({"name": format!("g{idx}")})),
        "resourceClaims": many(|idx| json!({"name": format!("r{idx}")})),
        "topologySpreadConstraints": many(|idx| json!({"topologyKey": format!("t{idx}")}))}});
    let old = created("pods", &pod);
    assert_eq!(validate_create(kind_of("pods"), &old).len(), 1000);
    assert!(!validate_update(kind_of("pods"), &old, &old).is_empty());
    let owners = many(
        |idx| json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": idx.to_string(), "controller": true}),
    );
    assert_eq!(
        validate_custom_meta(&json!({"metadata": {"name": "a", "ownerReferences": owners}}), false).len(),
        1
    );
    let versions = many(|_| json!({"name": "v1", "schema": {"openAPIV3Schema": {}}}));
    let crd =
        created("apiextensions.k8s.io/customresourcedefinitions", &json!({"spec": {"versions": versions}}));
    let kind = kind_of("apiextensions.k8s.io/customresourcedefinitions");
    assert!(validate_create(kind, &crd).len() < 10);
}

#[track_caller]
fn check_status(resource: &str, before: Value, change: Value, expected: &[&str]) {
    let kind = kind_of(resource);
    let mut old = created(resource, &json!({}));
    merge(&mut old, &json!({"metadata": {"resourceVersion": "1"}}));
    merge(&mut old, &before);
    let mut new = old.clone();
    merge(&mut new, &change);
    default(kind, &mut new);
    crate::prepare_status_update(kind, &mut new, &old);
    assert_eq!(texts(&validate_status_update(kind, &new, &old)), expected, "{new}");
}

#[test]
fn statuses() {
    let none = || json!({});
    check_status("nodes", none(), json!({"status": {"capacity": {"cpu": 4, "nvidia.com/gpu": 8}}}), &[]);
    check_status(
        "apps/deployments",
        none(),
        json!({"status": {"replicas": 1, "readyReplicas": 2}}),
        &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
    );
    check_status("batch/jobs", none(), json!({"status": {"active": 2, "ready": 1}}), &[]);
    check_status(
        "batch/jobs",
        json!({"status": {"succeeded": 2}}),
        json!({"status": {"succeeded": 1}}),
        &["status.succeeded: Invalid value: 1: cannot decrease the succeeded counter"],
    );
    check_status(
        "batch/jobs",
        none(),
        json!({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}),
        &[
            "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
            "status.startTime: Required value: startTime is required for finished job",
        ],
    );
    check_status(
        "namespaces",
        none(),
        json!({"status": {"phase": "Terminating"}}),
        &[
            "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
        ],
    );
    check_status(
        "scheduling.k8s.io@v1alpha2/podgroups",
        none(),
        json!({"status": {"conditions": [{"type": "PodGroupScheduled", "status": "Maybe", "reason": "R"}]}}),
        &[
            "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \"Unknown\"",
            "status.conditions[0].lastTransitionTime: Required value",
        ],
    );
    check_status(
        "resource.k8s.io/resourceclaims",
        none(),
        json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}),
        &["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    );
}

#[test]
fn metadata_of_custom_resources() {
    let errors = |meta: Value| texts(&validate_custom_meta(&json!({ "metadata": meta }), true));
    assert_eq!(errors(json!({"name": "a", "namespace": "n", "finalizers": ["plain"]})), [""; 0]);
    assert_eq!(errors(json!({"name": "a"})), ["metadata.namespace: Required value"]);
}

#[test]
fn priorities_and_gangs() {
    check(
        "scheduling.k8s.io/priorityclasses",
        json!({"value": 1_000_000_001}),
        &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
    );
    check(
        "scheduling.k8s.io/priorityclasses",
        json!({"metadata": {"name": "system-x"}}),
        &[
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: \
           system-x is not a known system priority class",
        ],
    );
    check_update(
        "scheduling.k8s.io/priorityclasses",
        json!({"value": 1}),
        json!({"value": 2}),
        &["value: Forbidden: may not be changed in an update."],
    );
    let workloads = "scheduling.k8s.io@v1alpha2/workloads";
    check(
        workloads,
        json!({"spec": {"podGroupTemplates": null}}),
        &["spec.podGroupTemplates: Required value"],
    );
    let template = |template: Value, expected: &[&str]| {
        check(workloads, json!({"spec": {"podGroupTemplates": [template]}}), expected);
    };
    template(
        json!({"name": "w"}),
        &[
            "spec.podGroupTemplates[0].schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`",
        ],
    );
    template(
        json!({"name": "w", "schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}),
        &[
            "spec.podGroupTemplates[0].schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: \
           `basic`, `gang`",
        ],
    );
    template(
        json!({"name": "w", "schedulingPolicy": {"gang": {}}}),
        &["spec.podGroupTemplates[0].schedulingPolicy.gang.minCount: Required value"],
    );
    let nine: Vec<Value> =
        (0..9).map(|idx| json!({"name": format!("w{idx}"), "schedulingPolicy": {"basic": {}}})).collect();
    check(
        workloads,
        json!({"spec": {"podGroupTemplates": nine}}),
        &["spec.podGroupTemplates: Too many: 9: must have at most 8 items"],
    );
    let groups = "scheduling.k8s.io@v1alpha2/podgroups";
    check(
        groups,
        json!({"spec": {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}}),
        &["spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item"],
    );
    check(
        groups,
        json!({"spec": {"priority": 1_000_000_001}}),
        &["spec.priority: Invalid value: 1000000001: must be less than or equal to 1000000000"],
    );
    check_update(
        groups,
        json!({}),
        json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}),
        &["spec.schedulingPolicy: Invalid value: null: field is immutable"],
    );
    check_update(
        "1.35:scheduling.k8s.io@v1alpha1/workloads",
        json!({}),
        json!({"spec": {"podGroups": [{"name": "v", "policy": {"basic": {}}}]}}),
        &["spec.podGroups: Invalid value: [{\"name\":\"v\",\"policy\":{\"basic\":{}}}]: field is immutable"],
    );
}

mod any_json {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::{
        admit_create, decode_error, event_to_core, event_to_events, field_value, from_storage, hpa_v1_to_v2,
        hpa_v2_to_v1, kinds, prepare_status_update,
    };

    /// Field names and values that rules look at, so that random objects reach them.
    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            8 => proptest::sample::select(vec![
                "metadata", "spec", "status", "name", "labels", "containers", "template", "selector", "resources",
                "limits", "requests", "cpu", "matchLabels", "matchExpressions", "key", "operator", "values", "ports",
                "port", "volumes", "affinity", "nodeAffinity", "tolerations", "rules", "metrics", "type", "data",
                "schedule", "jobTemplate", "env", "valueFrom", "fieldRef", "replicas", "strategy", "rollingUpdate",
                "maxSurge", "podGroupTemplates", "schedulingPolicy", "gang", "minCount", "hard", "devices", "exactly",
                "initContainers", "topologySpreadConstraints", "schedulingGates", "behavior", "scaleUp", "versions",
                "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "webhooks", "subjects",
            ]).prop_map(str::to_owned),
            1 => "[a-z/.é%-]{0,6}",
        ]
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            proptest::sample::select(vec![
                "",
                "a",
                "1",
                "-1",
                "1Gi",
                "25%",
                "In",
                "Always",
                "*",
                "@every 1é",
                "9e99",
                "é"
            ])
            .prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |inner| {
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                4 => prop::collection::vec((name(), inner), 0..6)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    /// An object with the usual top-level fields, so that most of the rules see something.
    fn object() -> impl Strategy<Value = Value> {
        let top = proptest::sample::select(vec![
            "metadata", "spec", "status", "data", "rules", "webhooks", "template",
        ])
        .prop_map(str::to_owned);
        prop::collection::vec((prop_oneof![top, name()], value()), 0..6)
            .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics_and_defaulting_is_stable(a in prop_oneof![9 => object(), 1 => value()], b in object()) {
            for kind in kinds(KubeVersion::V1_36).iter().chain(kinds(KubeVersion::V1_35)) {
                let (mut new, mut old) = (a.clone(), b.clone());
                let _ = decode_error(kind, &new);
                default(kind, &mut new);
                let once = new.clone();
                default(kind, &mut new);
                prop_assert_eq!(&new, &once, "{} {}", kind.group, kind.kind);
                default(kind, &mut old);
                prepare_create(kind, &mut old);
                admit_create(kind, &mut old);
                let _ = validate_create(kind, &old);
                prepare_update(kind, &mut new, &old);
                let _ = validate_update(kind, &new, &old);
                prepare_status_update(kind, &mut new, &old);
                let _ = validate_status_update(kind, &new, &old);
                for label in &kind.field_labels {
                    let _ = field_value(kind, &new, label);
                }
                let _ = from_storage(kind, to_storage(kind, new));
            }
            let _ = (validate_resize(&a, &b), validate_ephemeral_update(&a, &b), validate_binding(&a), validate_scale(&a));
            let _ = (hpa_v1_to_v2(a.clone()), hpa_v2_to_v1(a.clone()));
            let _ = apply_priority(&mut a.clone(), Some(&b));
        }

        #[test]
        fn events_come_back(entries in prop::collection::btree_map(
            proptest::sample::select(vec!["regarding", "note", "deprecatedCount", "reportingController", "reason", "type"]),
            value(), 0..6)) {
            let event: Value = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            prop_assert_eq!(event_to_events(event_to_core(event.clone())), event);
        }

        #[test]
        fn hpa_targets_come_back(percent in 1..100_i64, min in 1..9_i64) {
            let hpa = json!({"spec": {"minReplicas": min, "targetCPUUtilizationPercentage": percent}});
            prop_assert_eq!(hpa_v2_to_v1(hpa_v1_to_v2(hpa.clone())), hpa);
        }
    }
}
