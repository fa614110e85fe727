//! The manifests that several scenarios are made of, as text, so that a scenario reads like what a user would write.

/// A job of pods with one GPU each that run until they are deleted; `app` is their label.
pub fn gang(name: &str, pods: u32, minimum: u32) -> String {
    gang_with(name, pods, minimum, "")
}

/// The same with further annotations on the job, `key: value, key: value`.
pub fn gang_with(name: &str, pods: u32, minimum: u32, annotations: &str) -> String {
    format!(
        r#"
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  annotations: {{kai.scheduler/batch-min-member: "{minimum}", {annotations}}}
spec:
  parallelism: {pods}
  completions: {pods}
  backoffLimit: 100
  template:
    metadata:
      labels: {{app: {name}, kai.scheduler/queue: default-queue}}
      annotations: {{sim.muster.dev/duration: forever}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"#
    )
}

/// A replica set, whose pods are one gang with a minimum of 1; `app` is their label.
pub fn replicas(name: &str, pods: u32, gpus: u32, queue: &str) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: ReplicaSet
metadata: {{name: {name}}}
spec:
  replicas: {pods}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, kai.scheduler/queue: {queue}}}}}
    spec:
      schedulerName: kai-scheduler
      terminationGracePeriodSeconds: 1
      containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"#
    )
}

/// A pod of its own. `metadata` and `spec` are further fields, `key: value, key: value`.
pub fn pod(name: &str, gpus: u32, labels: &str, annotations: &str, spec: &str) -> String {
    let limits = if gpus > 0 { format!("{{nvidia.com/gpu: {gpus}}}") } else { "{}".to_owned() };
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  labels: {{app: {name}, {labels}}}
  annotations: {{{annotations}}}
spec:
  schedulerName: kai-scheduler
  terminationGracePeriodSeconds: 1
  containers: [{{name: c, image: i, resources: {{limits: {limits}}}}}]
  {spec}
"#
    )
}

/// A queue with so many GPUs of its own, and everything else as it likes.
pub fn queue(name: &str, parent: &str, gpus: i32) -> String {
    let parent = if parent.is_empty() { String::new() } else { format!("parentQueue: {parent}, ") };
    format!(
        "{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: {name}}}, spec: {{{parent}resources: {{\
         gpu: {{quota: {gpus}, limit: -1, overQuotaWeight: 1}}, cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}, \
         memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}}}}}}}"
    )
}

/// The definition of a kind of another project: whatever is written into it is kept.
pub fn foreign_kind(group: &str, version: &str, kind: &str) -> String {
    let singular = kind.to_lowercase();
    // Groups that end in k8s.io are guarded by an annotation.
    format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {singular}s.{group}, \
         annotations: {{api-approved.kubernetes.io: unapproved}}}}, spec: {{group: {group}, scope: Namespaced, names: \
         {{kind: {kind}, plural: {singular}s, singular: {singular}}}, versions: [{{name: {version}, served: true, storage: \
         true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
    )
}
