//! What Grove's users count on, one story each: gangs that wait and grow, that are torn down, that start in order, that are changed.

use muster_runtime::object::condition;
use serde_json::{Value, json};

use crate::cluster::set;
use crate::play::{Play, play, play_object};

/// Everything is needed; a node for each of ten pods.
const FULL: &str = "wl x1; pc-a 2/2; pc-b 1/1; pc-c 3/3; sg-x x2/2: pc-b pc-c";
/// One pod of each clique is enough, and one replica of the group.
const LEAN: &str = "wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c";

macro_rules! stories {
    ($($(#[$doc:meta])* $name:ident: $set:expr, $nodes:expr, $script:expr;)*) => {$(
        $(#[$doc])*
        #[tokio::test(start_paused = true)]
        async fn $name() {
            play($set, $nodes, $script).await;
        }
    )*};
}

stories! {
    full_groups_and_sets_grow_one_after_the_other: FULL, 28, "
        open 10
        run 10 of 10
        group wl-0-sg-x 3
        open 3
        run 10 of 14
        open 1
        run 14 of 14
        set 2
        open 9
        run 14 of 24
        open 1
        run 24 of 24
        group wl-1-sg-x 3
        open 3
        run 24 of 28
        open 1
        run 28 of 28";
    a_scaled_gang_takes_its_minimum_before_the_spares_of_the_base: LEAN, 14, "
        open 3
        run 3 of 10
        open 2
        run 5 of 10
        open 5
        run 10 of 10
        group wl-0-sg-x 3
        open 2
        run 12 of 14
        open 2
        run 14 of 14";
    a_second_replica_starts_with_its_base: LEAN, 20, "
        open 10
        run 10 of 10
        set 2
        open 2
        run 10 of 20
        open 1
        run 13 of 20
        open 7
        run 20 of 20";
    both_bases_before_any_spare: LEAN, 20, "
        set 2
        run 0 of 20
        open 6
        run 6 of 20
        open 4
        run 10 of 20
        open 10
        run 20 of 20";
    sets_and_groups_grow_in_turns: LEAN, 28, "
        open 3
        run 3 of 10
        open 7
        run 10 of 10
        group wl-0-sg-x 3
        open 4
        run 14 of 14
        set 2
        open 3
        run 17 of 24
        open 7
        run 24 of 24
        group wl-1-sg-x 3
        open 4
        run 28 of 28";

    one_pod_of_a_full_group_takes_the_replica_with_it: FULL, 10, "
        open 10
        run 10 of 10
        remember
        lose 1 wl-0-sg-x-0-pc-c
        kept
        open all
        run 10 of 10";
    the_last_pod_of_a_clique_takes_the_replica_with_it: LEAN, 10, "
        open 10
        run 10 of 10
        remember
        lose 1 wl-0-pc-a
        wait 60
        kept wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c
        lose 1 wl-0-pc-a
        kept
        open all
        run 10 of 10";
    a_group_replica_goes_alone_until_none_is_well: LEAN, 10, "
        open 10
        run 10 of 10
        remember
        lose 1 wl-0-sg-x-0-pc-c
        wait 60
        kept wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c
        lose 2 wl-0-sg-x-0-pc-c
        kept wl-0-pc-a wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c
        lose 3 wl-0-sg-x-1-pc-c
        kept
        open all
        run 10 of 10";
    all_pods_of_a_needed_clique_in_one_group_replica: "wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/3; sg-x x2/1: pc-b pc-c", 10, "
        open 10
        run 10 of 10
        remember
        lose 3 wl-0-sg-x-1-pc-c
        kept wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c";
    a_pod_of_a_scaled_gang_to_spare_comes_back_alone: LEAN, 10, "
        open 10
        run 10 of 10
        remember
        drop 1 wl-0-sg-x-1-pc-c
        run 10 of 10
        kept wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c";
    a_gang_that_gets_its_room_back_in_time_stays: FULL, 10, "
        open 10
        run 10 of 10
        remember
        lose 1 wl-0-pc-a
        wait 5
        open all
        run 10 of 10
        kept wl-0-pc-a wl-0-sg-x-0-pc-b wl-0-sg-x-0-pc-c wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c";

    a_change_of_one_clique_leaves_the_others: "p x1; a 3/2; b 1/1; sg x2/1: b", 6, "
        open 5
        run 5 of 5
        remember
        change app:2 a
        updated 1
        images app:1×2 app:2×3
        kept p-0-sg-0-b p-0-sg-1-b";
    a_change_of_a_grouped_clique_takes_its_replicas_one_by_one: "p x1; a 3/2; b 1/1; sg x2/1: b", 6, "
        open 5
        run 5 of 5
        remember
        change app:2 b
        updated 1
        images app:1×3 app:2×2
        kept p-0-a";
    a_replica_that_comes_during_a_roll_out_is_new: "p x1; a 2/1", 6, "
        open 4
        run 2 of 2
        change app:2 a
        set 2
        updated 2
        images app:2×4";
    a_replica_that_goes_during_a_roll_out_does_not_hold_it: "p x3; a 2/1", 6, "
        open 6
        run 6 of 6
        change app:2 a
        wait 1
        set 2
        updated 2
        images app:2×4";
    the_last_replica_goes_after_it_was_rolled: "p x2; a 2/1", 6, "
        open 4
        run 4 of 4
        change app:2 a
        updated 2
        set 1
        images app:2×2
        updated 1";
    a_group_that_grew_before_a_change_rolls_whole: "p x1; a 1/1; b 1/1; sg x2/1: b", 8, "
        open 8
        run 3 of 3
        group p-0-sg 4
        run 5 of 5
        change app:2 a b
        updated 1
        images app:2×5";
    a_group_that_grows_during_a_change: "p x1; a 1/1; b 1/1; sg x2/1: b", 8, "
        open 8
        run 3 of 3
        change app:2 b
        group p-0-sg 4
        updated 1
        images app:1×1 app:2×4";
    a_group_that_shrank_before_a_change: "p x1; a 1/1; b 1/1; sg x3/1: b", 8, "
        open 8
        run 4 of 4
        group p-0-sg 2
        run 3 of 3
        change app:2 a b
        updated 1
        images app:2×3";
    a_group_that_shrinks_during_a_change: "p x1; a 1/1; b 1/1; sg x3/1: b", 8, "
        open 8
        run 4 of 4
        change app:2 b
        wait 1
        group p-0-sg 1
        updated 1
        images app:1×1 app:2×1";
    a_clique_that_grew_before_a_change: "p x1; a 2/1", 8, "
        open 8
        run 2 of 2
        clique p-0-a 4
        run 4 of 4
        change app:2 a
        updated 1
        images app:2×4";
    a_clique_that_grows_during_a_change: "p x1; a 2/1", 8, "
        open 8
        run 2 of 2
        change app:2 a
        clique p-0-a 4
        updated 1
        images app:2×4";
    a_clique_that_shrank_before_a_change: "p x1; a 4/1", 8, "
        open 8
        run 4 of 4
        clique p-0-a 2
        run 2 of 2
        change app:2 a
        updated 1
        images app:2×2";
    a_clique_that_shrinks_during_a_change: "p x1; a 4/1", 8, "
        open 8
        run 4 of 4
        change app:2 a
        wait 1
        clique p-0-a 1
        updated 1
        images app:2×1";
    a_second_change_overtakes_the_first: "p x2; a 2/1", 8, "
        open 8
        run 4 of 4
        change app:2 a
        wait 1
        change app:3 a
        updated 2
        images app:3×4";

    a_set_of_nothing_makes_nothing: "p x0; a 2/1", 2, "
        open 2
        run 0 of 0
        set 1
        run 2 of 2
        set 0
        run 0 of 0";
}

/// A set whose changes wait for somebody to delete pods.
fn patient(text: &str) -> Value {
    let mut object = set(text);
    object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    object
}

macro_rules! patient_stories {
    ($($name:ident: $set:expr, $nodes:expr, $script:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            play_object(patient($set), $nodes, $script).await;
        }
    )*};
}

patient_stories! {
    a_patient_change_of_a_clique_touches_no_pod: "p x1; a 2/1", 3, "
        open 3
        run 2 of 2
        remember
        change app:2 a
        updated 0
        same
        images app:1×2";
    a_patient_change_of_a_group_touches_no_pod: "p x1; a 1/1; b 2/1; sg x2/1: b", 6, "
        open 6
        run 5 of 5
        remember
        change app:2 b
        updated 0
        same
        images app:1×5";
    a_patient_change_of_two_replicas_touches_no_pod: "p x2; a 2/1", 6, "
        open 6
        run 4 of 4
        remember
        change app:2 a
        updated 0
        same";
    what_is_deleted_by_hand_comes_back_new: "p x1; a 2/1", 3, "
        open 3
        run 2 of 2
        change app:2 a
        updated 0
        drop 1 p-0-a
        images app:1×1 app:2×1
        run 2 of 2
        drop 1 p-0-a
        wait 5";
    a_pod_of_a_group_that_is_deleted_comes_back_new: "p x1; a 1/1; b 2/1; sg x2/1: b", 6, "
        open 6
        run 5 of 5
        change app:2 b
        updated 0
        drop 1 p-0-sg-0-b
        images app:1×4 app:2×1
        run 5 of 5";
    the_old_one_goes_first_when_there_are_fewer: "p x1; a 2/1", 3, "
        open 3
        run 2 of 2
        change app:2 a
        updated 0
        drop 1 p-0-a
        run 2 of 2
        images app:1×1 app:2×1
        clique p-0-a 1
        images app:2×1";
    patience_can_be_given_up_and_taken_up_again: "p x1; a 2/1", 3, "
        open 3
        run 2 of 2
        change app:2 a
        updated 0
        strategy RollingRecreate
        updated 1
        images app:2×2
        strategy OnDelete
        remember
        change app:3 a
        updated 0
        same
        images app:2×2";
}

/// A pod is told to keep away from its node, and is deleted: the new one is elsewhere, the others stay.
#[tokio::test(start_paused = true)]
async fn one_pod_is_moved_by_hand() {
    let mut story = play_object(patient("p x1; a 2/1"), 3, "open 3\nrun 2 of 2\nremember").await;
    let bad = story.of("p-0-a").await[0].clone();
    let path = format!("{}/p", crate::cluster::SETS);
    let mut cliques = story.cluster.get(&path).await["spec"]["template"]["cliques"].clone();
    cliques[0]["spec"]["podSpec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [bad.spec.node_name]}]}]}}});
    story.cluster.patch(&path, json!({"spec": {"template": {"cliques": cliques}}})).await;
    story.on("updated 0").await;
    story.cluster.delete(&format!("/api/v1/namespaces/default/pods/{}", bad.metadata.name)).await;
    story.on("run 2 of 2\nkept p-0-a").await;
    assert!(story.of("p-0-a").await.iter().all(|pod| pod.spec.node_name != bad.spec.node_name));
}

/// When pods of each clique became ready, as `clique<clique`.
async fn ordered(story: &Play, chain: &[&str]) {
    let mut last: Option<jiff::Timestamp> = None;
    for clique in chain {
        let pods = story.of(clique).await;
        let times: Vec<_> = pods
            .iter()
            .filter_map(|pod| condition(&pod.status.conditions, "Ready")?.last_transition_time)
            .collect();
        let (first, end) = (times.iter().min().copied(), times.iter().min().copied());
        assert!(last <= first, "{clique} was ready before those it waits for");
        last = end;
    }
}

fn starting(text: &str, order: &str, after: &[(usize, &str)]) -> Value {
    let mut object = set(text);
    let template = &mut object["spec"]["template"];
    template["cliqueStartupType"] = json!(order);
    template["terminationDelay"] = json!("1h");
    for (index, parent) in after {
        template["cliques"][*index]["spec"]["startsAfter"] = json!([parent]);
    }
    for clique in template["cliques"].as_array_mut().unwrap() {
        clique["annotations"] = json!({"sim.muster.dev/ready-delay": "5s"});
    }
    object
}

#[tokio::test(start_paused = true)]
async fn cliques_start_in_their_order() {
    let object = starting(FULL, "CliqueStartupTypeInOrder", &[]);
    let story = play_object(object, 10, "open 10\nrun 10 of 10").await;
    ordered(&story, &["wl-0-pc-a", "wl-0-sg-x-0-pc-b", "wl-0-sg-x-0-pc-c"]).await;
    ordered(&story, &["wl-0-pc-a", "wl-0-sg-x-1-pc-b", "wl-0-sg-x-1-pc-c"]).await;
}

#[tokio::test(start_paused = true)]
async fn cliques_start_in_their_order_with_minima() {
    let object = starting(LEAN, "CliqueStartupTypeInOrder", &[]);
    let story = play_object(object, 10, "open 10\nrun 10 of 10").await;
    ordered(&story, &["wl-0-pc-a", "wl-0-sg-x-0-pc-b", "wl-0-sg-x-0-pc-c"]).await;
    // A scaled gang has its own order, whatever the base does.
    ordered(&story, &["wl-0-sg-x-1-pc-b", "wl-0-sg-x-1-pc-c"]).await;
}

#[tokio::test(start_paused = true)]
async fn cliques_start_after_those_they_name() {
    let object = starting(FULL, "CliqueStartupTypeExplicit", &[(2, "pc-a"), (1, "pc-c")]);
    let story = play_object(object, 10, "open 10\nrun 10 of 10").await;
    ordered(&story, &["wl-0-pc-a", "wl-0-sg-x-0-pc-c", "wl-0-sg-x-0-pc-b"]).await;
}

#[tokio::test(start_paused = true)]
async fn cliques_start_after_those_they_name_with_minima() {
    let object = starting(LEAN, "CliqueStartupTypeExplicit", &[(1, "pc-a"), (2, "pc-b")]);
    let story = play_object(object, 10, "open 10\nrun 10 of 10").await;
    ordered(&story, &["wl-0-pc-a", "wl-0-sg-x-0-pc-b", "wl-0-sg-x-0-pc-c"]).await;
    ordered(&story, &["wl-0-sg-x-1-pc-b", "wl-0-sg-x-1-pc-c"]).await;
}

/// Deleted, and nothing of it is left.
#[tokio::test(start_paused = true)]
async fn everything_goes_with_the_set() {
    let story = play(FULL, 10, "open 10\nrun 10 of 10").await;
    story.cluster.delete(&format!("{}/wl", crate::cluster::SETS)).await;
    for path in [
        "/apis/grove.io/v1alpha1/podcliquescalinggroups",
        "/apis/grove.io/v1alpha1/podcliques",
        "/apis/scheduler.grove.io/v1alpha1/podgangs",
        "/apis/scheduling.run.ai/v2alpha2/podgroups",
        "/api/v1/pods",
        "/api/v1/namespaces/default/services?labelSelector=app.kubernetes.io/part-of%3Dwl",
        "/api/v1/namespaces/default/secrets?labelSelector=app.kubernetes.io/part-of%3Dwl",
        "/api/v1/namespaces/default/serviceaccounts?labelSelector=app.kubernetes.io/part-of%3Dwl",
        "/apis/rbac.authorization.k8s.io/v1/roles?labelSelector=app.kubernetes.io/part-of%3Dwl",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings?labelSelector=app.kubernetes.io/part-of%3Dwl",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
    ] {
        let left = async |cluster: &crate::cluster::Cluster| cluster.items(path).await.len().to_string();
        story.cluster.until("0", left).await;
    }
}
