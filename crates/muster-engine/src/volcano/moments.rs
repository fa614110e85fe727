//! When time alone changes what Volcano's plugins decide.

use crate::state::State;
use muster_model::volcano::PluginKind;
use muster_model::{Span, Time};

/// How long a measured load counts.
pub const FRESH: Span = Span::seconds(300);
const DAY: i64 = 24 * 3_600_000;

/// The first moment after this one at which a gang is overdue, a pod may be taken, a zone opens or closes, or a load is out of date.
pub fn next(state: &State, after: Time) -> Time {
    let mut next = Time(i64::MAX);
    let mut note = |moment: Time| {
        if moment > after {
            next = next.min(moment);
        }
    };
    let Some(conf) = state.policy.volcano.as_ref().filter(|_| !state.volcano_gangs.is_empty()) else {
        return next;
    };
    let rows = || state.volcano_gangs.iter().map(|gang| &state.gangs.rows[gang]);
    for plugin in conf.tiers.iter().flatten() {
        match &plugin.kind {
            PluginKind::Sla { waiting } => {
                for model in rows().filter_map(|row| row.model.as_ref()) {
                    let own = model.volcano.as_ref().and_then(|group| group.waiting);
                    own.or(*waiting).into_iter().for_each(|span| note(model.created + span));
                }
            }
            PluginKind::Cdp => {
                let pods = rows().flat_map(|row| row.pods());
                let until = |pod| state.pods.row(pod).model.volcano.as_ref()?.cooldown_until;
                pods.filter_map(until).for_each(&mut note);
            }
            PluginKind::Tdm(tdm) => {
                let midnight = after.0 - after.0.rem_euclid(DAY);
                for edge in tdm.zones.values().flat_map(|(from, to)| [*from, *to]) {
                    note(Time(midnight.saturating_add(edge)));
                    note(Time(midnight.saturating_add(edge).saturating_add(DAY)));
                }
            }
            PluginKind::Usage(_) => {
                let models = state.nodes.known().filter_map(|node| state.nodes.rows[node].model.as_ref());
                // It counts up to and including its last moment.
                models.filter_map(|node| node.load).for_each(|load| note(load.at + FRESH + Span(1)));
            }
            _ => {}
        }
    }
    next
}
