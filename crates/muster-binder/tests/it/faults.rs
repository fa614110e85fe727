//! Bad days: every class of error, and death between any two requests.

use std::time::Duration;

use muster_binder::{Assignment, BindError, Options};
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::json;

use crate::cluster::{Cluster, MINUTE, allocation, cluster, options};

fn shown<T: std::fmt::Debug>(result: &Result<T, BindError>) -> String {
    match result {
        Ok(bound) => format!("{bound:?}"),
        Err(BindError::Retry { after: Some(after), .. }) => format!("again after {} s", after.as_secs()),
        Err(BindError::Retry { .. }) => "again".into(),
        Err(BindError::Refused { .. }) => "refused".into(),
        Err(other) => other.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_and_every_error() {
    let c = cluster(1, 0).await;
    let cases = [
        (Fault::Status(400), "refused"),
        (Fault::Status(401), "again"),
        (Fault::Status(403), "refused"),
        (Fault::Status(404), "the pod is gone"),
        (Fault::Status(409), "again"),
        (Fault::Status(410), "again"),
        (Fault::Status(422), "refused"),
        (Fault::Status(429), "again after 1 s"),
        (Fault::Status(500), "again"),
        (Fault::Status(503), "again after 1 s"),
        (Fault::Status(504), "again"),
        (Fault::Silence, "again"),
        (Fault::LostAnswer, "again"),
        (Fault::Delay(Duration::from_secs(3)), "Bound { already: false }"),
    ];
    for (i, (fault, expected)) in cases.into_iter().enumerate() {
        let a = c.plain(&format!("p{i}"), "node-0").await;
        let layer =
            FaultLayer::new(1, vec![Rule::on("create", "pods/binding").times(1).fault(fault.clone())]);
        let binder = c.binder(Some(&layer));
        assert_eq!(shown(&binder.bind_plain(&a).await), expected, "{fault:?}");
        let already = matches!(fault, Fault::LostAnswer | Fault::Delay(_));
        assert_eq!(
            shown(&binder.bind_plain(&a).await),
            format!("Bound {{ already: {already} }}"),
            "{fault:?} once more"
        );
    }
}

/// A pod that needs every step there is, on a GPU of its own.
async fn everything(c: &Cluster, i: usize) -> Assignment {
    let (pod, data, dev) = (format!("a{i}"), format!("data{i}"), format!("dev{i}"));
    c.volume_claim(&data, "fast").await;
    c.device_claim(&dev).await;
    let annotations =
        json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": format!("{pod}-shared-gpu")});
    let uid = c
        .pod(
            &pod,
            json!({"annotations": annotations}),
            json!({
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": data}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": dev}],
            }),
        )
        .await;
    Assignment {
        kind: muster_binder::Received::Fraction,
        gpu_count: 1,
        gpu_portion_milli: Some(500),
        gpu_groups: vec![format!("g{i}")],
        claims: vec![("gpu".into(), allocation("gpu-0"))],
        volumes: true,
        ..crate::cluster::assignment(&pod, &uid, &format!("node-{}", i % NODES))
    }
}

const NODES: usize = 32;

/// A cluster with room for many shared GPUs, whose volumes are bound as long as it lives.
async fn roomy() -> Cluster {
    let c = cluster(NODES, 8).await;
    c.storage_class("fast", "csi.example.com").await;
    let twin = Cluster {
        api: c.api.clone(),
        server: c.server.clone(),
        clock: c.clock,
        asked: Default::default(),
        cancel: c.cancel.child_token(),
    };
    let cancel = c.cancel.clone();
    tokio::spawn(cancel.run_until_cancelled_owned(async move {
        loop {
            twin.bind_volumes().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }));
    c
}

/// Everything that a bind leaves in the cluster.
async fn state(c: &Cluster, i: usize) -> String {
    let maps = format!("/api/v1/namespaces/default/configmaps/a{i}-shared-gpu-0");
    let evar = c.raw(&format!("{maps}-evar")).await;
    let device = evar["data"]["NVIDIA_VISIBLE_DEVICES"].as_str().map_or("none", |_| "device");
    let portion = c.raw(&maps).await["data"]["GPU_PORTION"].clone();
    let claim = c.raw(&format!("/api/v1/namespaces/default/persistentvolumeclaims/data{i}")).await;
    let mine = format!("g{i}@");
    let reservations = c.reservations().await;
    let reservations: Vec<&str> = reservations.split(", ").filter(|r| r.starts_with(&mine)).collect();
    format!(
        "node {:?} labels {:?} reservations {reservations:?} told {device} {portion} volume {} claim [{}]",
        c.node_of(&format!("a{i}")).await,
        c.labels(&format!("a{i}")).await,
        claim["status"]["phase"],
        c.device_claim_status(&format!("dev{i}")).await,
    )
}

fn whole(i: usize) -> String {
    let node = i % NODES;
    format!(
        "node \"node-{node}\" labels {{\"runai-gpu-group\": \"g{i}\"}} reservations [\"g{i}@node-{node} device\"] \
         told device \"0.50\" volume \"Bound\" claim [gpu-0 for a{i}]"
    )
}

#[tokio::test(start_paused = true)]
async fn death_between_any_two_requests() {
    let c = roomy().await;
    let mut service = None;
    for n in 0.. {
        let a = everything(&c, n).await;
        // The request after n others is never answered, and the binder dies waiting for it.
        let after = u32::try_from(n).unwrap();
        let layer = FaultLayer::new(1, vec![Rule::on("", "").after(after).fault(Fault::Silence)]);
        let binder = c.binder(Some(&layer));
        let assignment = a.clone();
        let task = tokio::spawn(async move { binder.bind(&assignment).await });
        while layer.n_faults() == 0 && !task.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let died = layer.n_faults() > 0;
        task.abort();
        // The next life knows nothing but the cluster: the scheduler decides the same again, or the service goes on.
        if n % 2 == 0 {
            c.binder(None).bind(&a).await.unwrap();
        } else {
            let service = service.get_or_insert_with(|| c.serve(None));
            if c.request(&a.pod.name).await.is_none() {
                c.binder(None).submit(&a).await.unwrap();
            }
            c.until(MINUTE, "Succeeded - -", async |c| c.request_status(&a.pod.name).await).await;
            service.cancel();
        }
        if n % 2 == 1 {
            service = None;
        }
        assert_eq!(state(&c, n).await, whole(n), "after death at request {n}");
        if !died {
            assert!(n > 8, "only {n} requests");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_may_fail_once() {
    let c = roomy().await;
    let mut i = 0;
    for code in [409, 410, 429, 500, 503, 0] {
        for n in 0.. {
            let a = everything(&c, i).await;
            let fault = if code == 0 { Fault::LostAnswer } else { Fault::Status(code) };
            let layer = FaultLayer::new(1, vec![Rule::on("", "").after(n).times(1).fault(fault)]);
            let result = c.binder(Some(&layer)).bind(&a).await;
            assert!(result.is_ok(), "{code} at request {n}: {result:?}");
            assert_eq!(state(&c, i).await, whole(i), "{code} at request {n}");
            i += 1;
            if layer.n_faults() == 0 {
                assert!(n > 8, "only {n} requests");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_leaves_nothing_behind() {
    let c = roomy().await;
    // In another process: it keeps shared GPUs, and leaves the scheduler's requests alone.
    c.serve_as(None, Options { owner: String::new(), ..options() });
    for n in 0.. {
        let i = usize::try_from(n).unwrap();
        let a = everything(&c, i).await;
        let layer = FaultLayer::new(1, vec![Rule::on("", "").after(n).times(1).fault(Fault::Status(403))]);
        let result = c.binder(Some(&layer)).bind(&a).await;
        if layer.n_faults() == 0 {
            assert!(result.is_ok() && n > 8, "only {n} requests");
            return;
        }
        // The last request only writes down how it ended.
        if result.is_ok() {
            continue;
        }
        assert_eq!(shown(&result), "refused", "at request {n}");
        let gone = "node \"\" labels {} reservations [] told none null";
        c.until(MINUTE, gone, async |c| {
            state(c, i).await.split(" volume").next().unwrap_or_default().to_owned()
        })
        .await;
        assert_eq!(c.device_claim_status(&format!("dev{i}")).await, " for ", "at request {n}");
    }
}

/// The Binding works, its answer is lost, and after that the API takes none for longer than anybody tries.
fn lost_for_good(pod: &str) -> Vec<Rule> {
    let binding = || Rule::on("create", "pods/binding").named(pod);
    vec![binding().times(1).fault(Fault::LostAnswer), binding().fault(Fault::Status(503))]
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_keeps_what_it_was_given() {
    let c = roomy().await;
    let a = everything(&c, 0).await;
    let layer = FaultLayer::new(1, lost_for_good("a0"));
    assert_eq!(shown(&c.binder(Some(&layer)).bind(&a).await), "Bound { already: true }");
    assert_eq!(state(&c, 0).await, whole(0));
    assert_eq!(c.request_status("a0").await, "Succeeded - -");

    // In a gang, it counts as bound.
    let gang = [c.plain("p0", "node-0").await, c.plain("p1", "node-0").await];
    let layer = FaultLayer::new(1, lost_for_good("p0"));
    let results = c.binder(Some(&layer)).bind_gang(&gang, 2, 1).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_be_in_use_is_not_taken_back() {
    let c = roomy().await;
    let a = everything(&c, 0).await;
    let mut rules = lost_for_good("a0");
    // Once when it is prepared; after that nobody tells what became of it.
    rules.push(Rule::on("get", "pods").named("a0").after(1).fault(Fault::Status(500)));
    let layer = FaultLayer::new(1, rules);
    assert!(c.binder(Some(&layer)).bind(&a).await.unwrap_err().retryable());
    assert_eq!(state(&c, 0).await, whole(0));
    // The service finds out.
    assert_eq!(c.request_status("a0").await, "- - -");
    c.serve(None);
    c.until(MINUTE, "Succeeded - -", async |c| c.request_status("a0").await).await;
    assert_eq!(state(&c, 0).await, whole(0));
}

#[tokio::test(start_paused = true)]
async fn time_spent_on_waiting_is_no_patience_lost() {
    let c = cluster(1, 0).await;
    c.storage_class("fast", "csi.example.com").await;
    c.volume_claim("data", "fast").await;
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let uid = c.pod("a", json!({}), volumes).await;
    let a = Assignment { volumes: true, ..crate::cluster::assignment("a", &uid, "node-0") };
    let layer = FaultLayer::new(
        1,
        vec![
            Rule::on("get", "persistentvolumeclaims").after(40).times(1).fault(Fault::Status(500)),
            Rule::on("create", "pods/binding").times(2).fault(Fault::Status(503)),
        ],
    );
    let binder = c.binder(Some(&layer));
    let task = tokio::spawn(async move { binder.bind(&a).await });
    tokio::time::sleep(MINUTE).await;
    assert_eq!(layer.n_faults(), 1);
    c.bind_volumes().await;
    assert_eq!(shown(&task.await.unwrap()), "Bound { already: false }");
    assert_eq!(layer.n_faults(), 3);
}

#[tokio::test(start_paused = true)]
async fn taking_back_is_tried_again() {
    let c = roomy().await;
    c.serve_as(None, Options { owner: String::new(), ..options() });
    let a = everything(&c, 0).await;
    let layer = FaultLayer::new(
        1,
        vec![
            Rule::on("create", "pods/binding").fault(Fault::Status(403)),
            Rule::on("delete", "configmaps").times(3).fault(Fault::Status(500)),
            Rule::on("patch", "resourceclaims/status").after(1).times(2).fault(Fault::Status(503)),
        ],
    );
    assert_eq!(shown(&c.binder(Some(&layer)).bind(&a).await), "refused");
    let gone = "node \"\" labels {} reservations [] told none null";
    c.until(MINUTE, gone, async |c| state(c, 0).await.split(" volume").next().unwrap_or_default().to_owned())
        .await;
    assert_eq!(c.device_claim_status("dev0").await, " for ");
}
