//! An engine that lives through all cycles of a case, told only what changed, decides as one that is built anew for every cycle.

use crate::replay::worked_cases;
use muster_engine::Engine;
use muster_model::{Change, Cluster, Key, Name};
use muster_scenario::{Decided, play_with};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What makes one cluster of another: between cycles pods, gangs and claims change, and nothing comes or goes.
fn changes(before: &Cluster, after: &Cluster) -> Vec<Change> {
    fn changed<T: PartialEq>(
        before: &[Arc<T>],
        after: &[Arc<T>],
        key: impl Fn(&T) -> Key,
        put: impl Fn(Arc<T>) -> Change,
    ) -> Vec<Change> {
        let old: BTreeMap<Key, &Arc<T>> = before.iter().map(|x| (key(x), x)).collect();
        after.iter().filter(|x| old.get(&key(x)) != Some(x)).cloned().map(put).collect()
    }
    let mut all = changed(&before.claims, &after.claims, |c| c.key.clone(), Change::PutClaim);
    all.extend(changed(&before.gangs, &after.gangs, |g| g.key.clone(), Change::PutGang));
    all.extend(changed(&before.pods, &after.pods, |p| p.key.clone(), Change::PutPod));
    all
}

#[test]
fn an_engine_that_is_told_changes_decides_like_a_new_one() {
    let mut differ = Vec::new();
    for (case, _) in worked_cases() {
        let mut live: Option<(Engine, Cluster)> = None;
        let outcome = play_with(&case, false, &mut |cycle, cluster, policy, _| {
            let (mut fresh, _) = Engine::build(cluster.clone(), policy.clone());
            let decisions = fresh.cycle(cluster.now);
            let engine = match &mut live {
                None => {
                    let (engine, _) = Engine::build(cluster.clone(), policy.clone());
                    &mut live.insert((engine, cluster.clone())).0
                }
                Some((engine, before)) => {
                    // The engine holds what it decided to be so; everything that came out otherwise is a change to that, so all
                    // pods that it touched are told again.
                    engine.apply(changes(before, cluster));
                    *before = cluster.clone();
                    engine
                }
            };
            let kept = engine.cycle(cluster.now);
            if let Some((_, before)) = &mut live {
                // What a cycle decides it assumes; only saying it anew takes it back.
                let touched: Vec<Name> = kept
                    .evictions
                    .iter()
                    .map(|e| &e.pod)
                    .chain(kept.binds.iter().map(|b| &b.pod))
                    .map(|k| k.name.clone())
                    .collect();
                before.pods.retain(|p| !touched.contains(&p.key.name));
            }
            if (&kept.binds, &kept.evictions, &kept.pipelined)
                != (&decisions.binds, &decisions.evictions, &decisions.pipelined)
            {
                differ.push(format!("{}, cycle {}", case.id, cycle + 1));
            }
            Decided { decisions, ..Decided::default() }
        });
        assert!(outcome.is_ok());
    }
    assert!(differ.is_empty(), "{differ:#?}");
}
