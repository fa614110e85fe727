//! Muster's services on a live cluster: the same scenarios on the embedded cluster and on real Kubernetes.
//!
//! A scenario is a function over a [`room::Room`]: a namespace and, where it matters, nodes of its own, so that all of them
//! run side by side on one cluster of each make. It speaks to the API alone and waits for states, never for times.

mod admission;
mod basics;
mod contention;
mod devices;
mod dialects;
mod grove;
mod kinds;
mod manifests;
mod operations;
mod room;
mod samples;
mod site;

/// Each scenario as a test of its own on one make of cluster.
macro_rules! on {
    ($site:ident: $($module:ident :: $scenario:ident,)*) => {
        mod $site {$(
            #[tokio::test]
            async fn $scenario() -> anyhow::Result<()> {
                let site = crate::site::$site().await?;
                crate::room::in_a_room(site, stringify!($scenario), crate::$module::$scenario).await
            }
        )*}
    };
}

macro_rules! on_both {
    ($($scenarios:tt)*) => {
        on! {embedded: $($scenarios)*}
        on! {real: $($scenarios)*}
    };
}

on_both! {
    basics::quickstart,
    basics::gang_whole_or_nothing,
    basics::elastic_beyond_its_minimum,
    basics::owners_make_groups,
    kinds::pytorch_job,
    kinds::ray_cluster,
    kinds::leader_worker_set,
    kinds::every_kind,
    contention::queues_take_back_what_is_theirs,
    contention::priority_goes_first,
    contention::halves_are_put_together,
    contention::a_gang_that_lost_a_member_goes,
    devices::a_gang_stays_in_its_rack,
    devices::parts_of_a_gpu,
    devices::a_volume_follows_its_pod,
    devices::devices_by_claim,
    admission::mistakes_are_named_with_their_fix,
    operations::shards_keep_to_their_pools,
    operations::killed_in_a_burst,
    operations::handed_over,
    operations::bound_by_a_service,
    operations::a_name_is_taken_over,
    samples::kai_samples,
    grove::founding_set_becomes_gangs,
    grove::founding_gang_becomes_a_pod_group,
    grove::founding_pods_are_gated_and_then_run,
    grove::founding_set_is_scaled,
    grove::founding_set_goes_with_everything,
    grove::founding_inference_on_the_default_scheduler,
    grove::founding_smallest_set,
    grove::sets_are_judged_as_they_come,
    grove::gangs_without_a_pod_group,
    dialects::t9k_two_pods_dance_together,
    dialects::t9k_roles_come_together,
    dialects::volcano_queue_with_a_guarantee,
    dialects::koordinator_gang,
    dialects::kueue_quick_start,
    dialects::kueue_cohort_lends_and_takes_back,
    dialects::all_at_once,
}

// The embedded server under Kubernetes' own controllers: jobs, replicas, owners and namespaces are theirs there.
on! {managed:
    basics::quickstart,
    basics::gang_whole_or_nothing,
    basics::elastic_beyond_its_minimum,
    basics::owners_make_groups,
    grove::founding_set_becomes_gangs,
    grove::founding_gang_becomes_a_pod_group,
    grove::founding_pods_are_gated_and_then_run,
    grove::founding_set_is_scaled,
    grove::founding_set_goes_with_everything,
    grove::founding_inference_on_the_default_scheduler,
    grove::founding_smallest_set,
    dialects::kueue_quick_start,
}
