//! Each kind of owner: a pod and its owners in YAML, and the group as one line.
//!
//! A group is shown as `name min (sub-groups) -> sub-group of the pod`, followed by what differs from the defaults. A
//! sub-group is `name:min`, or `name[..]` with its children, `name/2[..]` if two of them are enough.

use std::fmt::Write as _;
use std::sync::Arc;

use muster_runtime::common::Pod;
use serde_json::{Value, json};

use crate::chain::{Owner, Reference};
use crate::group::{Grouping, GroupingError, Min, Topology, World, group};
use crate::{Defaults, Options, keys};

fn yaml(text: &str) -> Value {
    if text.is_empty() {
        json!({})
    } else {
        serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}

/// `apiVersion Kind name` and the rest of the object in YAML.
pub fn owner(head: &str, rest: &str) -> Arc<Owner> {
    let [api_version, kind, name] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
    let mut object = yaml(rest);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!("ns");
    object["metadata"]["uid"] = json!(format!("u-{name}"));
    let keep = super::keep(crate::chain::group_of(api_version), kind);
    Arc::new(Owner::read(api_version, kind, &object.to_string(), keep).unwrap())
}

pub fn pod(text: &str) -> Pod {
    let mut pod = yaml(text);
    if pod["metadata"]["name"].is_null() {
        pod["metadata"]["name"] = json!("p-0");
    }
    pod["metadata"]["namespace"] = json!("ns");
    pod["metadata"]["uid"] = json!("u-p");
    serde_json::from_value(pod).unwrap()
}

#[derive(Default)]
pub struct Case {
    pub options: Options,
    defaults: Defaults,
    also: Vec<(Reference, Option<Arc<Owner>>)>,
    peers: Vec<Arc<Pod>>,
    groups: Vec<&'static str>,
}

impl Case {
    pub fn group(&self, pod: &Pod, chain: &[Arc<Owner>]) -> Result<Grouping, GroupingError> {
        let world = World {
            options: &self.options,
            defaults: &self.defaults,
            has_class: &|name| ["train", "build", "inference", "high"].contains(&name),
            has_group: &|name| self.groups.contains(&name),
            also: &self.also,
            peers: Some(&self.peers),
        };
        group(pod, chain, &world)
    }

    #[track_caller]
    fn check(&self, pod_text: &str, chain: &[Arc<Owner>], expected: &str) {
        let shown = match self.group(&pod(pod_text), chain) {
            Ok(grouping) => show(&grouping),
            Err(error) => format!("{error}"),
        };
        assert_eq!(shown, expected);
    }
}

#[track_caller]
fn check(pod_text: &str, chain: &[Arc<Owner>], expected: &str) {
    Case::default().check(pod_text, chain, expected);
}

fn labels(labels: &str) -> String {
    format!("metadata: {{labels: {{{labels}}}}}")
}

fn show(grouping: &Grouping) -> String {
    let mut out = grouping.name.clone();
    match grouping.min {
        Min::Members(n) => write!(out, " {n}").unwrap(),
        Min::Subgroups(n) => write!(out, " /{n}").unwrap(),
        Min::All => out.push_str(" all"),
    }
    if !grouping.subgroups.is_empty() {
        write!(out, " ({})", tree(grouping, None)).unwrap();
    }
    if let Some(subgroup) = &grouping.subgroup {
        write!(out, " -> {subgroup}").unwrap();
    }
    if grouping.queue != "default-queue" {
        write!(out, " queue={}", grouping.queue).unwrap();
    }
    if grouping.priority_class.value != "train" {
        write!(out, " class={}", grouping.priority_class.value).unwrap();
    }
    if let Some(wish) = &grouping.preemptibility {
        write!(out, " {}", wish.value).unwrap();
    }
    if let Some(wish) = &grouping.preemption_delay {
        write!(out, " delay={}", wish.value).unwrap();
    }
    if let Some(wish) = &grouping.staleness_grace {
        write!(out, " grace={}", wish.value).unwrap();
    }
    out.push_str(&place(&grouping.topology));
    for note in &grouping.notes {
        write!(out, "\n{note}").unwrap();
    }
    out
}

fn tree(grouping: &Grouping, parent: Option<&str>) -> String {
    let below = grouping.subgroups.iter().filter(|group| group.parent.as_deref() == parent);
    let shown = below.map(|group| {
        let children = tree(grouping, Some(&group.name));
        let min = match group.min {
            Min::Members(n) => format!(":{n}"),
            Min::Subgroups(n) => format!("/{n}"),
            Min::All => String::new(),
        };
        let children = if children.is_empty() { String::new() } else { format!("[{children}]") };
        format!("{}{min}{children}{}", group.name, place(&group.topology))
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn place(topology: &Topology) -> String {
    if *topology == Topology::default() {
        return String::new();
    }
    format!(" @{}:{}:{}", topology.topology, topology.required, topology.preferred)
}

#[test]
fn plain_owners() {
    check("", &[], "pg-p-0-u-p 1");
    check("", &[owner("apps/v1 ReplicaSet web", "")], "pg-web-u-web 1");
    check("", &[owner("apps/v1 StatefulSet web", "spec: {replicas: 5}")], "pg-web-u-web 1");
    check("", &[owner("example.com/v1 Thing t", "")], "pg-t-u-t 1");
    check(
        "",
        &[owner("tekton.dev/v1 TaskRun t", ""), owner("tekton.dev/v1 PipelineRun p", "")],
        "pg-p-u-p 1",
    );
    check("", &[owner("kubevirt.io/v1 VirtualMachineInstance vm", "")], "pg-vm-u-vm 1");
    check("", &[owner("machinelearning.seldon.io/v1 SeldonDeployment s", "")], "pg-s-u-s 1");
    check("", &[owner("kubeflow.org/v1beta1 Notebook n", "")], "pg-n-u-n 1 class=build");
    check("", &[owner("egx.nvidia.io/v1 SPOTRequest s", "")], "pg-s-u-s 1 class=inference");
    let deployment = [owner("apps/v1 ReplicaSet web-1", ""), owner("apps/v1 Deployment web", "")];
    check("", &deployment, "pg-p-0-u-p 1 class=inference");
    let spark = labels("spark-app-name: a, spark-app-selector: spark-7f");
    check(&spark, &[], "spark-7f 1");
    check(&spark, &[owner("v1 Pod driver", "")], "spark-7f 1");
    check("", &[owner("v1 Pod driver", "")], "pg-driver-u-driver 1");
}

#[test]
fn owners_and_names_of_groups() {
    let deployment = [
        owner("apps/v1 ReplicaSet web-1", ""),
        owner("apps/v1 Deployment web", "metadata: {labels: {a: b}}"),
    ];
    let grouping = Case::default().group(&pod(""), &deployment).unwrap();
    assert_eq!(
        serde_json::to_value(grouping.owner_reference()).unwrap(),
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p-0", "uid": "u-p"}),
    );
    assert_eq!(grouping.labels["a"], "b", "labels are the deployment's");
    assert_eq!(
        grouping.annotations[keys::TOP_OWNER],
        "name: web\nuid: u-web\ngroup: apps\nversion: v1\nkind: Deployment\n",
    );
    let long = owner(&format!("batch/v1 Job {}", "x".repeat(240)), "");
    let name = Case::default().group(&pod(""), &[long]).unwrap().name;
    assert!(name.len() <= 253 && name.starts_with("pg-xxx"), "{name}");
}

#[test]
fn queues() {
    let job = |labels: &str| [owner("batch/v1 Job j", &format!("metadata: {{labels: {{{labels}}}}}"))];
    check("", &job("kai.scheduler/queue: q"), "pg-j-u-j 1 queue=q");
    check(&labels("kai.scheduler/queue: mine"), &job("kai.scheduler/queue: q"), "pg-j-u-j 1 queue=q");
    check(&labels("kai.scheduler/queue: mine"), &job(""), "pg-j-u-j 1 queue=mine");
    check("", &job("project: a"), "pg-j-u-j 1 queue=a");
    check(&labels("project: a, kai.scheduler/node-pool: gpu"), &job(""), "pg-j-u-j 1 queue=a-gpu");
    check(&labels("kai.scheduler/node-pool: gpu"), &job(""), "pg-j-u-j 1");
}

#[test]
fn classes_and_other_wishes() {
    let job = |rest: &str| [owner("batch/v1 Job j", rest)];
    check("", &job("metadata: {labels: {priorityClassName: high}}"), "pg-j-u-j 1 class=high");
    check(&labels("priorityClassName: high"), &job(""), "pg-j-u-j 1 class=high");
    check("spec: {priorityClassName: high}", &job(""), "pg-j-u-j 1 class=high");
    check(
        "spec: {priorityClassName: high}",
        &job("metadata: {labels: {priorityClassName: build}}"),
        "pg-j-u-j 1 class=build",
    );
    check(
        "",
        &job("metadata: {labels: {priorityClassName: nope}}"),
        "pg-j-u-j 1\nJob ns/j or its pods name the priority class \"nope\", which does not exist: train is used instead. Create the PriorityClass, or correct the label priorityClassName",
    );
    check(
        "",
        &job(
            "metadata: {labels: {kai.scheduler/preemptibility: non-preemptible}, annotations: {kai.scheduler/preemption-delay: 30s, kai.scheduler/staleness-grace-period: -1s}}",
        ),
        "pg-j-u-j 1 non-preemptible delay=30s grace=-1s",
    );
    check(
        "metadata: {labels: {kai.scheduler/preemptibility: preemptible}, annotations: {kai.scheduler/preemption-delay: soon}}",
        &job(""),
        "pg-j-u-j 1 preemptible\nannotation kai.scheduler/preemption-delay of Job ns/j or its pods is \"soon\", which is no duration, and is ignored. Write for example kai.scheduler/preemption-delay: \"30s\"",
    );
    check(
        "",
        &job(
            "metadata: {annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack}}",
        ),
        "pg-j-u-j 1 @t:rack:",
    );
    let case = Case {
        defaults: Defaults::read(
            r#"[{"typeName": "Job", "group": "batch", "priorityName": "build", "preemptibility": "Preemptible"},
                {"typeName": "Workflow", "group": "argoproj.io", "priorityName": "high"},
                {"typeName": "Deployment", "priorityName": "nope"}]"#,
        )
        .unwrap(),
        ..Case::default()
    };
    case.check("", &job(""), "pg-j-u-j 1 class=build preemptible");
    case.check("spec: {priorityClassName: high}", &job(""), "pg-j-u-j 1 class=high preemptible");
    case.check("", &[owner("argoproj.io/v1alpha1 Workflow w", "")], "pg-p-0-u-p 1 class=high");
    case.check("", &[owner("apps/v1 Deployment d", "")], "pg-p-0-u-p 1 class=inference");
}

#[test]
fn jobs() {
    let job = |value: &str| {
        [owner(
            "batch/v1 Job j",
            &format!(
                "metadata: {{annotations: {{kai.scheduler/batch-min-member: {value:?}}}}}\nspec: {{parallelism: 9}}"
            ),
        )]
    };
    check("", &[owner("batch/v1 Job j", "spec: {parallelism: 9}")], "pg-j-u-j 1");
    check("", &job("8"), "pg-j-u-j 8");
    check("", &job("0"), "pg-j-u-j 0");
    for bad in ["many", "-3", "1000000000000000000", "99999999999999999999999", "1.5", " "] {
        check(
            "",
            &job(bad),
            &format!(
                "pg-j-u-j 1\nannotation kai.scheduler/batch-min-member of Job ns/j is {bad:?}, which is no whole number from 0 to 2147483647: 1 is used. Write for example kai.scheduler/batch-min-member: \"8\""
            ),
        );
    }
    let cron = [
        owner("batch/v1 Job c-1", ""),
        owner("batch/v1 CronJob c", "metadata: {labels: {kai.scheduler/queue: q}}"),
    ];
    check("", &cron, "pg-c-1-u-c-1 1 queue=q");
    let case = Case {
        options: Options { search_legacy_pod_groups: true, ..Options::default() },
        groups: vec!["pg-p-0-u-j"],
        ..Case::default()
    };
    case.check("", &job("8"), "pg-p-0-u-j 1");
}

#[test]
fn jobs_say_how_many_pods_they_need_in_all() {
    #[track_caller]
    fn check(min: &str, spec: &str, expected: Option<&str>) {
        let job = owner(
            "batch/v1 Job j",
            &format!("metadata: {{annotations: {{kai.scheduler/batch-min-member: {min:?}}}}}\nspec: {spec}"),
        );
        let grouping = Case::default().group(&pod(""), &[job]).unwrap();
        assert_eq!(grouping.annotations.get(keys::MEMBERS).map(String::as_str), expected);
    }
    check("4", "{parallelism: 4, completions: 8}", Some("8"));
    check("4", "{parallelism: 4}", None);
    check("1", "{completions: 8}", None);
    check("4", "{completions: -8}", None);
    check("4", "{completions: many}", None);
}

#[test]
fn flat_training_jobs_say_how_many_pods_they_need_in_all() {
    #[track_caller]
    fn check(kind: &str, spec: &str, expected: Option<&str>) {
        let job = owner(&format!("kubeflow.org/v1 {kind} t"), &format!("spec: {{{spec}}}"));
        let grouping = Case::default().group(&pod(""), &[job]).unwrap();
        assert_eq!(grouping.annotations.get(keys::MEMBERS).map(String::as_str), expected);
    }
    let roles = "tfReplicaSpecs: {PS: {replicas: 2}, Worker: {replicas: 3}}";
    check("TFJob", roles, Some("5"));
    check("TFJob", &format!("runPolicy: {{schedulingPolicy: {{minAvailable: 4}}}}, {roles}"), Some("5"));
    check("TFJob", &format!("runPolicy: {{schedulingPolicy: {{minAvailable: 1}}}}, {roles}"), None);
    check("TFJob", "runPolicy: {schedulingPolicy: {minAvailable: 4}}", None);
    check("JAXJob", "jaxReplicaSpecs: {Worker: {replicas: 3}}", Some("3"));
    let launcher = "mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}";
    check("MPIJob", launcher, Some("5"));
    check("MPIJob", &format!("launcherCreationPolicy: WaitForWorkersReady, {launcher}"), Some("5"));
    // A group with sub-groups has a minimum for each of them.
    check("PyTorchJob", "pytorchReplicaSpecs: {Worker: {replicas: 4}}", None);
}

#[test]
fn skipped_owners() {
    let workflow = owner(
        "argoproj.io/v1alpha1 Workflow w",
        "metadata: {labels: {kai.scheduler/queue: q, priorityClassName: high}}",
    );
    check("", std::slice::from_ref(&workflow), "pg-p-0-u-p 1 queue=q class=high");
    let training = owner(
        "run.ai/v2 TrainingWorkload t",
        "metadata: {labels: {kai.scheduler/queue: q}, annotations: {kai.scheduler/batch-min-member: '4'}}",
    );
    check("", &[owner("batch/v1 Job j", ""), training.clone()], "pg-j-u-j 4 queue=q");
    let own = owner("batch/v1 Job j", "metadata: {labels: {kai.scheduler/queue: mine}}");
    check("", &[own, training], "pg-j-u-j 4 queue=mine");
}

#[test]
fn jobsets() {
    let set = |rest: &str| {
        let jobs = "spec:\n  replicatedJobs:\n  - {name: driver}\n  - {name: workers, replicas: 2, template: {spec: {parallelism: 4}}}\n";
        [
            owner("batch/v1 Job s-workers-1", ""),
            owner("jobset.x-k8s.io/v1alpha2 JobSet s", &format!("{rest}\n{jobs}")),
        ]
    };
    let of = |job: &str, index: &str| {
        labels(&format!(
            "jobset.sigs.k8s.io/replicatedjob-name: {job}, jobset.sigs.k8s.io/job-index: '{index}'"
        ))
    };
    let shape = "(driver/1[driver-replica-0:1] workers/2[workers-replica-0:4 workers-replica-1:4])";
    check(&of("workers", "1"), &set(""), &format!("pg-s-u-s /2 {shape} -> workers-replica-1"));
    check(
        &of("driver", "0"),
        &set("metadata: {annotations: {kai.scheduler/batch-min-member: '1'}}"),
        &format!("pg-s-u-s /1 {shape} -> driver-replica-0"),
    );
    check(
        &of("driver", "0"),
        &set("metadata: {annotations: {kai.scheduler/batch-min-member: none}}"),
        &format!(
            "pg-s-u-s /2 {shape} -> driver-replica-0\nannotation kai.scheduler/batch-min-member of JobSet ns/s is \"none\", which is no whole number from 1 to 2147483647: 2 is used. Write for example kai.scheduler/batch-min-member: \"8\""
        ),
    );
    let train =
        owner("trainer.kubeflow.org/v1alpha1 TrainJob t", "metadata: {labels: {kai.scheduler/queue: q}}");
    let mut chain = set("").to_vec();
    chain.push(train);
    check(&of("workers", "0"), &chain, &format!("pg-s-u-s /2 {shape} -> workers-replica-0 queue=q"));
    let in_order = owner(
        "jobset.x-k8s.io/v1alpha2 JobSet s",
        "spec: {startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [{name: a, template: {metadata: {annotations: {kai.scheduler/batch-min-member: '2', kai.scheduler/topology: t, kai.scheduler/topology-preferred-placement: rack}}, spec: {parallelism: 3}}}, {name: b}]}",
    );
    check(
        &of("a", "0"),
        &[in_order],
        "pg-s-u-s /1 (a/1[a-replica-0:2 @t::rack] b/1[b-replica-0:1]) -> a-replica-0",
    );
    check(
        "",
        &set(""),
        "Pod ns/p-0 has no label jobset.sigs.k8s.io/replicatedjob-name, which its controller sets: let the JobSet controller create the pod, or restore the label",
    );
    check(
        &of("workers", "7"),
        &set(""),
        "Pod ns/p-0 is not ready to be grouped: its labels jobset.sigs.k8s.io/replicatedjob-name and jobset.sigs.k8s.io/job-index say workers-replica-7, which JobSet ns/s does not have",
    );
    check(
        &of("a", "0"),
        &[owner("jobset.x-k8s.io/v1alpha2 JobSet s", "spec: {replicatedJobs: [{name: a, replicas: 20000}]}")],
        "JobSet ns/s would have 20001 sub-groups, and at most 10000 are possible: lower spec.replicatedJobs[0].replicas",
    );
    check(
        &of("a", "0"),
        &[owner(
            "jobset.x-k8s.io/v1alpha2 JobSet s",
            "spec: {replicatedJobs: [{name: a}, {name: b, replicas: 0}]}",
        )],
        "pg-s-u-s /1 (a/1[a-replica-0:1]) -> a-replica-0",
    );
    check(
        &of("a", "0"),
        &[owner("jobset.x-k8s.io/v1alpha2 JobSet s", "spec: {replicatedJobs: [{name: a}, {name: a}]}")],
        "JobSet ns/s has two sub-groups that are both named a: rename one of its roles",
    );
}

#[test]
fn jobsets_do_not_wait_for_what_comes_later() {
    #[track_caller]
    fn check_root(jobs: &str, expected: &str) {
        let set = owner("jobset.x-k8s.io/v1alpha2 JobSet s", &format!("spec: {{replicatedJobs: [{jobs}]}}"));
        let of_a = labels("jobset.sigs.k8s.io/replicatedjob-name: a, jobset.sigs.k8s.io/job-index: '0'");
        check(&of_a, &[set], &format!("pg-s-u-s {expected} -> a-replica-0"));
    }
    let three = "(a/1[a-replica-0:1] b/1[b-replica-0:1] c/1[c-replica-0:1])";
    check_root("{name: a}, {name: b}, {name: c}", &format!("/3 {three}"));
    // Workers that wait for a driver that stays.
    check_root(
        "{name: a}, {name: b}, {name: c, dependsOn: [{name: a, status: Ready}]}",
        &format!("/2 {three}"),
    );
    // Two that prepare and end, and then the one that trains: it is alone by then.
    check_root(
        "{name: a}, {name: b}, {name: c, dependsOn: [{name: a, status: Complete}, {name: b, status: Complete}]}",
        &format!("/1 {three}"),
    );
    check_root("{name: a, dependsOn: [{name: a}]}", "/1 (a/1[a-replica-0:1])");
    check_root("{name: a, template: {spec: {parallelism: 4, completions: 3}}}", "/1 (a/1[a-replica-0:3])");
    check_root("{name: a, template: {spec: {parallelism: 4, completions: 9}}}", "/1 (a/1[a-replica-0:4])");
}

fn torch(rest: &str) -> [Arc<Owner>; 1] {
    [owner("kubeflow.org/v1 PyTorchJob t", rest)]
}

fn replica(kind: &str, index: &str) -> String {
    labels(&format!(
        "training.kubeflow.org/replica-type: {kind}, training.kubeflow.org/replica-index: '{index}'"
    ))
}

#[test]
fn pytorch_jobs() {
    let roles = "pytorchReplicaSpecs: {Master: {replicas: 1}, Worker: {replicas: 3}}";
    check(
        &replica("worker", "0"),
        &torch(&format!("spec: {{{roles}}}")),
        "pg-t-u-t 4 (master:1 worker:3) -> worker",
    );
    check(
        &replica("master", "0"),
        &torch(&format!("spec: {{{roles}}}")),
        "pg-t-u-t 4 (master:1 worker:3) -> master",
    );
    let min = "runPolicy: {schedulingPolicy: {minAvailable: 2}}";
    let elastic = "elasticPolicy: {minReplicas: 3}";
    check("", &torch(&format!("spec: {{{min}, {elastic}, {roles}}}")), "pg-t-u-t 2 (master:1 worker:1)");
    check("", &torch(&format!("spec: {{{elastic}, {roles}}}")), "pg-t-u-t 3 (master:1 worker:2)");
    check("", &torch("spec: {pytorchReplicaSpecs: {Worker: {}}}"), "pg-t-u-t 1 (worker:1)");
    check(
        "",
        &torch("spec: {pytorchReplicaSpecs: {Master: {replicas: 1}, Worker: {replicas: 0}}}"),
        "spec.pytorchReplicaSpecs.Worker.replicas of PyTorchJob ns/t is 0: write at least 1, or remove the replica spec",
    );
    check(
        "",
        &torch("spec: {pytorchReplicaSpecs: {Worker: {replicas: many}}}"),
        "spec.pytorchReplicaSpecs.Worker.replicas of PyTorchJob ns/t is \"many\": write a whole number from 0 to 2147483647",
    );
    check(
        "",
        &torch("spec: {}"),
        "PyTorchJob ns/t has no spec.pytorchReplicaSpecs, so how many pods it needs is not known: add its replica specs",
    );
}

#[test]
fn pytorch_segments() {
    let job = |n: i64, extra: &str, size: &str| {
        torch(&format!(
            "metadata: {{annotations: {{kai.scheduler/topology: t}}}}\nspec: {{{extra} pytorchReplicaSpecs: {{Master: {{replicas: 1}}, Worker: {{replicas: {n}, template: {{metadata: {{annotations: {{kai.scheduler/segment-size: {size:?}, kai.scheduler/segment-topology-required-placement: rack}}}}}}}}}}}}"
        ))
    };
    check(
        &replica("worker", "5"),
        &job(5, "", "4"),
        "Pod ns/p-0 has no label training.kubeflow.org/replica-index, which its controller sets: segments need the index of each worker, from 0 to 4",
    );
    check(
        &replica("worker", "4"),
        &job(5, "", "4"),
        "pg-t-u-t 6 (master:1 worker[worker-0:4 @t:rack: worker-1:1 @t:rack:]) -> worker-1 @t::",
    );
    check(
        &replica("master", "0"),
        &job(6, "elasticPolicy: {minReplicas: 4},", "2"),
        "pg-t-u-t 4 (master:1 worker[worker-0:2 @t:rack: worker-1:1 @t:rack: worker-2:0 @t:rack:]) -> master @t::",
    );
    for (size, why) in [
        ("many", "is no whole number"),
        ("0", "must be from 1 to 2147483647"),
        ("-4", "must be from 1 to 2147483647"),
        ("1", "would make more than 10000 segments of 20000 pods"),
    ] {
        check(
            &replica("worker", "0"),
            &job(20_000, "", size),
            &format!(
                "pg-t-u-t 20001 (master:1 worker:20000) -> worker @t::\nthe segment size of PyTorchJob ns/t is {size:?}, which {why}: its pods are not cut into segments. Write for example kai.scheduler/segment-size: \"8\""
            ),
        );
    }
}

#[test]
fn other_training_jobs() {
    let job =
        |kind: &str, spec: &str| [owner(&format!("kubeflow.org/v1 {kind} t"), &format!("spec: {{{spec}}}"))];
    check("", &job("TFJob", "tfReplicaSpecs: {PS: {replicas: 2}, Worker: {replicas: 3}}"), "pg-t-u-t 5");
    check(
        "",
        &job("XGBoostJob", "xgbReplicaSpecs: {Master: {replicas: 1}, Worker: {replicas: 3}}"),
        "pg-t-u-t 4",
    );
    check(
        "",
        &job("XGBoostJob", "xgbReplicaSpecs: {Master: {replicas: 1}}"),
        "XGBoostJob ns/t has no spec.xgbReplicaSpecs.Worker, so how many pods it needs is not known: add this replica spec, which is required",
    );
    check("", &job("JAXJob", "jaxReplicaSpecs: {Worker: {replicas: 3}}"), "pg-t-u-t 3");
    check("", &job("TFJob", "runPolicy: {schedulingPolicy: {minAvailable: 2}}"), "pg-t-u-t 2");
    let roles = "mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 4}}";
    check("", &job("MPIJob", roles), "pg-t-u-t 5");
    let late = format!("launcherCreationPolicy: WaitForWorkersReady, {roles}");
    check("", &job("MPIJob", &late), "pg-t-u-t 4");
    let launcher = labels("training.kubeflow.org/job-role: launcher, training.kubeflow.org/job-name: t");
    check(&launcher, &job("MPIJob", &late), "pg-t-u-t 5");
    let case = Case { peers: vec![Arc::new(pod(&launcher))], ..Case::default() };
    case.check("", &job("MPIJob", &late), "pg-t-u-t 5");
    case.check("", &[owner("kubeflow.org/v2beta1 MPIJob t", &format!("spec: {{{late}}}"))], "pg-t-u-t 5");
    let aml = |n: &str| {
        [owner(
            "amlarc.azureml.com/v1alpha1 AmlJob a",
            &format!("spec: {{job: {{options: {{envs: {{AZUREML_NODE_COUNT: {n}}}}}}}}}"),
        )]
    };
    check("", &aml("3"), "pg-a-u-a 3");
    check("", &aml("'3'"), "pg-a-u-a 3");
    check(
        "",
        &aml("null"),
        "AmlJob ns/a has no spec.job.options.envs.AZUREML_NODE_COUNT, so how many pods it needs is not known: set it to the number of pods",
    );
    check("metadata: {name: job-a-0}", &[owner("run.ai/v1 RunaiJob r", "")], "pg-job-a-u-r 1");
}

#[test]
fn ray() {
    let cluster = "spec:\n  headGroupSpec: {template: {metadata: {annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack}}}}\n  workerGroupSpecs:\n  - {groupName: gpu, replicas: 3, minReplicas: 2, numOfHosts: 4}\n  - {groupName: cpu, replicas: 2}\n  - {groupName: off, replicas: 5, suspend: true}\n  - {replicas: 1}\n  - {groupName: none}\n";
    let cluster = owner("ray.io/v1 RayCluster c", cluster);
    let shape = "12 (headgroup:1 @t:rack: gpu:8 cpu:2 worker-group-3:1)";
    let job_shape = "12 (headgroup:1 @t:rack: gpu:8 cpu:2 worker-group-3:1 submitter:0)";
    check(&labels("ray.io/group: gpu"), std::slice::from_ref(&cluster), &format!("pg-c-u-c {shape} -> gpu"));
    check(
        &labels("ray.io/group: headgroup"),
        std::slice::from_ref(&cluster),
        &format!("pg-c-u-c {shape} -> headgroup"),
    );
    check("", std::slice::from_ref(&cluster), &format!("pg-c-u-c {shape}"));
    let job = owner(
        "ray.io/v1 RayJob j",
        "metadata: {labels: {ray.io/priority-class-name: high}}\nstatus: {rayClusterName: c}",
    );
    check(
        &labels("ray.io/group: cpu"),
        &[cluster.clone(), job.clone()],
        &format!("pg-j-u-j {job_shape} -> cpu class=high"),
    );
    let reference = Reference {
        api_version: "ray.io/v1".into(),
        kind: "RayCluster".into(),
        name: "c".into(),
        uid: "".into(),
    };
    let case = Case { also: vec![(reference.clone(), Some(cluster))], ..Case::default() };
    case.check(
        "",
        &[owner("batch/v1 Job submit", ""), job.clone()],
        &format!("pg-j-u-j {job_shape} -> submitter class=high"),
    );
    check("", &[owner("batch/v1 Job submit", ""), job], "more must be read first");
    check(
        "",
        &[owner("ray.io/v1 RayService s", "status: {}")],
        "RayService ns/s is not ready to be grouped: its status names no RayCluster yet. If this stays so, see whether the Ray operator runs",
    );
    check(
        "",
        &[owner("ray.io/v1 RayCluster c", "spec: {workerGroupSpecs: [{replicas: 1, minReplicas: 2}]}")],
        "pg-c-u-c 3 (headgroup:1 worker-group-0:2)",
    );
    check(
        "",
        &[owner("ray.io/v1 RayCluster c", "spec: {workerGroupSpecs: [{replicas: 5, maxReplicas: 3}]}")],
        "pg-c-u-c 4 (headgroup:1 worker-group-0:3)",
    );
    check(
        &labels("ray.io/group: GPU_1"),
        &[owner("ray.io/v1 RayCluster c", "spec: {workerGroupSpecs: [{groupName: GPU_1, replicas: 1}]}")],
        &format!("pg-c-u-c 2 (headgroup:1 {0}:1) -> {0}", crate::group::subgroup_name("GPU_1")),
    );
}

#[test]
fn ray_clusters_that_scale_by_themselves_need_their_lower_bounds_only() {
    let cluster = |rest: &str| {
        let spec = format!(
            "spec: {{{rest} workerGroupSpecs: [{{groupName: a, replicas: 6}}, {{groupName: b, replicas: 4, minReplicas: 1, numOfHosts: 2}}, {{groupName: c}}]}}"
        );
        [owner("ray.io/v1 RayCluster c", &spec)]
    };
    check(
        &labels("ray.io/group: c"),
        &cluster("enableInTreeAutoscaling: true,"),
        "pg-c-u-c 3 (headgroup:1 a:0 b:2 c:0) -> c",
    );
    check("", &cluster("enableInTreeAutoscaling: false,"), "pg-c-u-c 9 (headgroup:1 a:6 b:2)");
}

fn lws(spec: &str) -> [Arc<Owner>; 2] {
    [
        owner("apps/v1 StatefulSet l", ""),
        owner("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet l", &format!("spec: {{{spec}}}")),
    ]
}

fn member(index: &str) -> String {
    labels(&format!(
        "leaderworkerset.sigs.k8s.io/group-index: '2', leaderworkerset.sigs.k8s.io/worker-index: '{index}'"
    ))
}

#[test]
fn leader_worker_sets() {
    check(
        &member("0"),
        &lws("leaderWorkerTemplate: {size: 4}"),
        "pg-l-u-l-group-2 4 (leader:1 workers:3) -> leader",
    );
    check(
        &member("3"),
        &lws("leaderWorkerTemplate: {size: 4}"),
        "pg-l-u-l-group-2 4 (leader:1 workers:3) -> workers",
    );
    check(&member("0"), &lws("leaderWorkerTemplate: {size: 1}"), "pg-l-u-l-group-2 1 (leader:1) -> leader");
    let ready = "startupPolicy: LeaderReady, leaderWorkerTemplate: {size: 4}";
    check(&member("0"), &lws(ready), "pg-l-u-l-group-2 1 (leader:1) -> leader");
    check(
        &format!("{}\nspec: {{nodeName: node-1}}", member("0")),
        &lws(ready),
        "pg-l-u-l-group-2 4 (leader:1 workers:3) -> leader",
    );
    check(&member("1"), &lws(ready), "pg-l-u-l-group-2 4 (leader:1 workers:3) -> workers");
    let placed = "leaderWorkerTemplate: {size: 3, workerTemplate: {metadata: {annotations: {kai.scheduler/topology: t, kai.scheduler/topology-required-placement: rack}}}}";
    check(&member("1"), &lws(placed), "pg-l-u-l-group-2 3 (leader:1 workers:2 @t:rack:) -> workers");
    check(
        &member("0"),
        &lws("leaderWorkerTemplate: {size: 0}"),
        "spec.leaderWorkerTemplate.size of LeaderWorkerSet ns/l is 0: write at least 1, for the leader",
    );
}

#[test]
fn replicas_keep_the_size_that_they_were_made_with() {
    let of = |index: &str, size: &str| {
        format!(
            "metadata: {{labels: {{leaderworkerset.sigs.k8s.io/group-index: '2', leaderworkerset.sigs.k8s.io/worker-index: '{index}'}}, annotations: {{leaderworkerset.sigs.k8s.io/size: '{size}'}}}}"
        )
    };
    let grown = lws("leaderWorkerTemplate: {size: 6}");
    check(&of("1", "4"), &grown, "pg-l-u-l-group-2 4 (leader:1 workers:3) -> workers");
    check(&of("1", "6"), &grown, "pg-l-u-l-group-2 6 (leader:1 workers:5) -> workers");
    for odd in ["0", "-1", "many", ""] {
        check(&of("1", odd), &grown, "pg-l-u-l-group-2 6 (leader:1 workers:5) -> workers");
    }
    let cut = lws("leaderWorkerTemplate: {size: 7, subGroupPolicy: {subGroupSize: 2}}");
    check(&of("4", "5"), &cut, "pg-l-u-l-group-2 5 (segment-0[leader:1 workers:2] segment-1:2) -> segment-1");
}

#[test]
fn leader_worker_segments() {
    let set = |size: i64, policy: &str| {
        lws(&format!("leaderWorkerTemplate: {{size: {size}, subGroupPolicy: {{{policy}}}}}"))
    };
    // Four workers in two segments, the leader on top of the first.
    let even = "pg-l-u-l-group-2 5 (segment-0[leader:1 workers:2] segment-1:2)";
    for (index, at) in
        [("0", "leader"), ("1", "workers"), ("2", "workers"), ("3", "segment-1"), ("4", "segment-1")]
    {
        check(&member(index), &set(5, "subGroupSize: 2"), &format!("{even} -> {at}"));
    }
    // One segment holds all.
    check(
        &member("4"),
        &set(5, "subGroupSize: 4"),
        "pg-l-u-l-group-2 5 (segment-0[leader:1 workers:4]) -> workers",
    );
    // Five workers: the leader is one of the first segment, and the last segment is what remains.
    let uneven = "pg-l-u-l-group-2 6 (segment-0[leader:1 workers:3] segment-1:2)";
    for (index, at) in [("0", "leader"), ("3", "workers"), ("4", "segment-1"), ("5", "segment-1")] {
        check(&member(index), &set(6, "subGroupSize: 4"), &format!("{uneven} -> {at}"));
    }
    let excluded = "subGroupSize: 2, subGroupPolicyType: LeaderExcluded";
    for (index, at) in [("0", "leader"), ("1", "segment-0"), ("4", "segment-1")] {
        check(
            &member(index),
            &set(5, excluded),
            &format!("pg-l-u-l-group-2 5 (leader:1 segment-0:2 segment-1:2) -> {at}"),
        );
    }
    check(
        &member("1"),
        &set(6, excluded),
        "pg-l-u-l-group-2 6 (leader:1 workers:5) -> workers\nLeaderWorkerSet ns/l keeps its leader out of its segments of 2, and its 5 workers do not divide by that: its pods are not cut into segments. Write a size that divides 5",
    );
    check(
        &member("1"),
        &set(4, "subGroupSize: 9"),
        "pg-l-u-l-group-2 4 (leader:1 workers:3) -> workers\nthe segment size of LeaderWorkerSet ns/l is \"9\", which must be from 2 to 4: its pods are not cut into segments. Write for example kai.scheduler/segment-size: \"8\"",
    );
    check(
        &member("x"),
        &set(5, "subGroupSize: 2"),
        "Pod ns/p-0 has no label leaderworkerset.sigs.k8s.io/worker-index, which its controller sets: segments need the index of each pod, from 0 to 4",
    );
}

#[test]
fn knative() {
    let chain = |scale: &str| {
        [
            owner("apps/v1 ReplicaSet r", ""),
            owner("apps/v1 Deployment d", ""),
            owner(
                "serving.knative.dev/v1 Revision rev",
                &format!("metadata: {{labels: {{kai.scheduler/queue: q}}, annotations: {{{scale}}}}}"),
            ),
            owner("serving.knative.dev/v1 Configuration c", ""),
            owner("serving.knative.dev/v1 Service s", ""),
        ]
    };
    check("", &chain("autoscaling.knative.dev/min-scale: '3'"), "pg-rev-u-rev 3 queue=q class=inference");
    check("", &chain(""), "pg-rev-u-rev 1 queue=q class=inference");
    let alone = Case { options: Options { knative_gang: false, ..Options::default() }, ..Case::default() };
    alone.check("", &chain("autoscaling.knative.dev/min-scale: '3'"), "pg-p-0-u-p 1 queue=q class=inference");
    let legacy = Case {
        peers: vec![Arc::new(pod("metadata: {annotations: {pod-group-name: pg-other}}"))],
        ..Case::default()
    };
    legacy.check("", &chain(""), "pg-p-0-u-p 1 queue=q class=inference");
    let shared = Case {
        peers: vec![Arc::new(pod("metadata: {annotations: {pod-group-name: pg-rev-u-rev}}"))],
        ..Case::default()
    };
    shared.check("", &chain(""), "pg-rev-u-rev 1 queue=q class=inference");
}

#[test]
fn grove() {
    let gang = owner(
        "scheduler.grove.io/v1alpha1 PodGang g",
        "metadata: {annotations: {kai.scheduler/topology: t}}\nspec:\n  priorityClassName: high\n  topologyConstraint: {packConstraint: {required: zone}}\n  topologyConstraintGroupConfigs: [{name: sg, podGroupNames: [b, c], topologyConstraint: {packConstraint: {preferred: rack}}}]\n  podgroups:\n  - {name: a, minReplicas: 1, podReferences: [{namespace: ns, name: p-0}]}\n  - {name: b, minReplicas: 2, podReferences: [{namespace: other, name: p-1}]}\n  - {name: c, minReplicas: 3, podReferences: []}\n",
    );
    let of = |also: Option<Arc<Owner>>| Case {
        also: vec![(super::grove::reference("g"), also)],
        ..Case::default()
    };
    let chain = [owner("grove.io/v1alpha1 PodClique q", ""), owner("grove.io/v1alpha1 PodCliqueSet s", "")];
    let shape = "pg-g-u-g 6 (sg[b:2 c:3] @t::rack a:1)";
    of(Some(gang.clone())).check(
        &labels("grove.io/podgang: g"),
        &chain,
        &format!("{shape} -> a class=high @t:zone:"),
    );
    of(Some(gang.clone())).check(
        "metadata: {name: p-1, labels: {grove.io/podgang: g}}",
        &chain,
        &format!("{shape} class=high @t:zone:"),
    );
    of(Some(gang)).check(
        "metadata: {name: p-9, labels: {grove.io/podgang: g, grove.io/podclique: c}}",
        &chain,
        &format!("{shape} -> c class=high @t:zone:"),
    );
    of(None).check(&labels("grove.io/podgang: g"), &chain, "left alone");
    check(&labels("grove.io/podgang: g"), &chain, "more must be read first");
    check(
        "",
        &chain,
        "Pod ns/p-0 has no label grove.io/podgang, which its controller sets: let Grove create the pod, or restore the label",
    );
}

#[test]
fn the_founding_podgroup() {
    let gang = owner(
        "scheduler.grove.io/v1alpha1 PodGang ml-training-0",
        "spec:\n  priorityClassName: high-priority\n  podgroups:\n  - {name: ml-training-0-master, minReplicas: 1, podReferences: []}\n  - {name: ml-training-0-workers, minReplicas: 3, podReferences: []}\n",
    );
    let case = Case { also: vec![(super::grove::reference("ml-training-0"), Some(gang))], ..Case::default() };
    let grouping = case.group(&pod(&labels("grove.io/podgang: ml-training-0")), &[]).unwrap();
    assert_eq!(
        Value::Object(grouping.spec()),
        json!({
            "minMember": 4,
            "priorityClassName": "high-priority",
            "queue": "default-queue",
            "subGroups": [
                {"name": "ml-training-0-master", "minMember": 1},
                {"name": "ml-training-0-workers", "minMember": 3},
            ],
        }),
    );
}

#[test]
fn left_alone() {
    let job = [owner("batch/v1 Job j", "")];
    for text in [
        "metadata: {annotations: {kai.scheduler/skip-podgrouper: 'true'}}",
        "metadata: {annotations: {kubernetes.io/config.mirror: x}}",
        "spec: {schedulingGroup: {podGroupName: g}}",
        "spec: {workloadRef: {name: w}}",
    ] {
        check(text, &job, "left alone");
    }
    check("metadata: {annotations: {pod-group-name: g}}", &[], "left alone");
    // Its own group is no group by hand, even if it is the only thing that is left of it.
    check("metadata: {annotations: {pod-group-name: pg-p-0-u-p}}", &[], "pg-p-0-u-p 1");
    check(
        "",
        &[owner("batch/v1 Job j", "metadata: {annotations: {kai.scheduler/skip-podgrouper: 'true'}}")],
        "Job ns/j has the annotation kai.scheduler/skip-podgrouper: \"true\", so its pods are put into no PodGroup and wait until somebody names one in their annotation pod-group-name. Take the annotation away, or write it on the pods themselves if each may start alone",
    );
    check("metadata: {annotations: {kai.scheduler/skip-podgrouper: 'false'}}", &job, "pg-j-u-j 1");
}

#[test]
fn keys_of_other_systems_say_nothing() {
    let job = [owner("batch/v1 Job j", "")];
    for text in [
        "metadata: {annotations: {scheduling.k8s.io/group-name: g}}",
        "metadata: {annotations: {scheduling.volcano.sh/group-name: g}}",
        "metadata: {annotations: {gang.scheduling.koordinator.sh/name: g}}",
        "metadata: {labels: {pod-group.scheduling.sigs.k8s.io: g}}",
        "metadata: {labels: {scheduler.tensorstack.dev/group-name: g}}",
    ] {
        check(text, &job, "pg-j-u-j 1");
    }
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    /// Values that look like those of workloads, and such that do not.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (0i64..9).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
            prop::sample::select(vec!["a", "Worker", "InOrder", "Complete", "LeaderReady", "LeaderExcluded"])
                .prop_map(Value::from),
        ];
        let keys = prop::sample::select(vec![
            "replicatedJobs",
            "replicas",
            "name",
            "template",
            "spec",
            "metadata",
            "annotations",
            "parallelism",
            "pytorchReplicaSpecs",
            "tfReplicaSpecs",
            "mpiReplicaSpecs",
            "jaxReplicaSpecs",
            "Master",
            "Worker",
            "Launcher",
            "workerGroupSpecs",
            "groupName",
            "minReplicas",
            "maxReplicas",
            "enableInTreeAutoscaling",
            "dependsOn",
            "status",
            "numOfHosts",
            "leaderWorkerTemplate",
            "size",
            "subGroupPolicy",
            "subGroupSize",
            "subGroupPolicyType",
            "workerTemplate",
            "startupPolicy",
            "podgroups",
            "podReferences",
            "elasticPolicy",
            "runPolicy",
            "schedulingPolicy",
            "minAvailable",
            "rayClusterName",
            "launcherCreationPolicy",
            "topologyConstraintGroupConfigs",
            "podGroupNames",
            "job",
            "options",
            "envs",
            "AZUREML_NODE_COUNT",
            keys::SEGMENT_SIZE,
            keys::MIN_MEMBER,
            keys::TOPOLOGY,
        ]);
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn kinds() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "batch/v1 Job",
            "batch/v1 CronJob",
            "jobset.x-k8s.io/v1alpha2 JobSet",
            "apps/v1 Deployment",
            "kubeflow.org/v1 PyTorchJob",
            "kubeflow.org/v1 TFJob",
            "kubeflow.org/v1 XGBoostJob",
            "kubeflow.org/v1 JAXJob",
            "kubeflow.org/v2beta1 MPIJob",
            "kubeflow.org/v1beta1 Notebook",
            "ray.io/v1 RayCluster",
            "ray.io/v1 RayJob",
            "ray.io/v1 RayService",
            "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
            "serving.knative.dev/v1 Service",
            "argoproj.io/v1alpha1 Workflow",
            "amlarc.azureml.com/v1alpha1 AmlJob",
            "run.ai/v1 RunaiJob",
            "grove.io/v1alpha1 PodCliqueSet",
            "scheduler.grove.io/v1alpha1 PodGang",
            "v1 Pod",
            "x/y/z Odd",
            " ",
        ])
    }

    fn strings() -> impl Strategy<Value = muster_runtime::object::Strings> {
        let keys = prop::sample::select(vec![
            keys::MIN_MEMBER,
            keys::SEGMENT_SIZE,
            keys::TOPOLOGY,
            keys::TOPOLOGY_REQUIRED,
            keys::PREEMPTION_DELAY,
            keys::PREEMPTIBILITY,
            keys::PRIORITY,
            keys::QUEUE,
            keys::PROJECT,
            keys::PODGANG,
            keys::SUBGROUP,
            "training.kubeflow.org/replica-type",
            "training.kubeflow.org/replica-index",
            "ray.io/group",
            "jobset.sigs.k8s.io/replicatedjob-name",
            "jobset.sigs.k8s.io/job-index",
            "spark-app-name",
            "spark-app-selector",
            "leaderworkerset.sigs.k8s.io/group-index",
            "leaderworkerset.sigs.k8s.io/worker-index",
            "leaderworkerset.sigs.k8s.io/size",
        ]);
        let values =
            prop_oneof!["\\PC{0,12}", "[0-9]{1,30}", Just("worker".to_owned()), Just("0".to_owned())];
        let pairs = prop::collection::vec((keys.prop_map(str::to_owned), values), 0..8);
        pairs.prop_map(|pairs| pairs.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn no_owner_makes_it_panic(
            chain in prop::collection::vec((kinds(), "\\PC{0,12}", values(), values(), strings(), strings()), 0..4),
            pod_labels in strings(),
            pod_annotations in strings(),
        ) {
            let chain: Vec<Arc<Owner>> = chain.into_iter().map(|(kind, name, spec, status, labels, annotations)| {
                let (api_version, kind) = kind.split_once(' ').unwrap();
                Arc::new(Owner {
                    api_version: api_version.into(), kind: kind.into(), namespace: "ns".into(), uid: format!("u-{name}"),
                    name, spec, status, labels, annotations, owners: vec![],
                })
            }).collect();
            let gang = chain.first().cloned();
            let mut pod = pod("");
            pod.metadata.labels = pod_labels;
            pod.metadata.annotations = pod_annotations;
            let also = pod.metadata.labels.get(keys::PODGANG).map(|name| (super::super::grove::reference(name), gang));
            let case = Case { also: also.into_iter().collect(), ..Case::default() };
            if let Ok(grouping) = case.group(&pod, &chain) {
                prop_assert!(grouping.subgroups.len() <= crate::group::MOST_GROUPS + 1);
                let manifest = grouping.manifest();
                // What was just written is what is wanted.
                let there: muster_runtime::common::PodGroup = serde_json::from_value(manifest).unwrap();
                let plan = crate::plan::plan(&pod, &grouping, Some(&there), &case.options);
                prop_assert_eq!(plan.group, crate::plan::Step::Nothing);
                let parents: std::collections::BTreeSet<&str> = grouping.subgroups.iter().map(|g| g.name.as_str()).collect();
                prop_assert!(grouping.subgroups.iter().all(|g| g.parent.as_deref().is_none_or(|p| parents.contains(p))));
                // The rules that KAI's webhook holds PodGroups to.
                for group in &grouping.subgroups {
                    let is_leaf = !grouping.subgroups.iter().any(|g| g.parent.as_deref() == Some(&group.name));
                    prop_assert_eq!(is_leaf, matches!(group.min, Min::Members(_)), "{:?}", group);
                }
                prop_assert!(grouping.subgroup.as_deref().is_none_or(|own| parents.contains(own)));
            }
        }
    }
}
