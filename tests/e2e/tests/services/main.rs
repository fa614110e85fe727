//! Muster's services on a live cluster: the same scenarios on the embedded cluster and on real Kubernetes.
//!
//! A scenario is a function over a [`room::Room`]: a namespace and, where it matters, nodes of its own, so that all of them
//! run side by side on one cluster of each make. It speaks to the API alone and waits for states, never for times.

mod basics;
mod room;
mod site;

/// Each scenario as a test on either cluster.
macro_rules! on_both {
    ($($module:ident :: $scenario:ident,)*) => {
        mod embedded {$(
            #[tokio::test]
            async fn $scenario() -> anyhow::Result<()> {
                let site = crate::site::embedded().await?;
                crate::room::in_a_room(site, stringify!($scenario), crate::$module::$scenario).await
            }
        )*}
        mod real {$(
            #[tokio::test]
            async fn $scenario() -> anyhow::Result<()> {
                let site = crate::site::real().await?;
                crate::room::in_a_room(site, stringify!($scenario), crate::$module::$scenario).await
            }
        )*}
    };
}

on_both! {
    basics::quickstart,
    basics::gang_whole_or_nothing,
    basics::elastic_beyond_its_minimum,
    basics::owners_make_groups,
}
