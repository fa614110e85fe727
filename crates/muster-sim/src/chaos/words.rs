//! Chaos in words. Pure.

use std::time::Duration;

use super::{Caller, Matching, NodeState, Planned, ServerState, What, When, Which};
use crate::faults::Fault;

/// A fault of the plan, in one line: `power: after 30s, every 5m for 2m: 1 node falls silent`.
pub fn plan(planned: &Planned) -> String {
    let Planned { name, when, what } = planned;
    let what = match what {
        What::Nodes { which, state } => format!(
            "{} {}",
            nodes(which),
            node_state(state, which.count == Some(1) && which.domain.is_none())
        ),
        What::Requests { from, matching, share, fault } => requests(from, matching, *share, fault),
        What::Server(state) => server(*state).to_owned(),
        What::ServicesKilled => "Muster's services are killed".to_owned(),
    };
    format!("{name}: {}: {what}", times(when))
}

fn times(when: &When) -> String {
    let mut text = format!("after {}", span(when.at));
    if !when.jitter.is_zero() {
        text += &format!(" and up to {} more", span(when.jitter));
    }
    if let Some(every) = when.every {
        text += &format!(", every {}", span(every));
    }
    if let Some(times) = when.times {
        text += &format!(", {times} times");
    }
    if when.chance < 1000 {
        text += &format!(", with a chance of {}", share(when.chance));
    }
    if let Some(lasts) = when.lasts {
        text += &format!(", for {}", span(lasts));
    }
    text
}

fn nodes(which: &Which) -> String {
    let count = which.count.map_or_else(|| "all".to_owned(), |n| n.to_string());
    let of: Vec<String> = match which.names.is_empty() {
        true => which.selector.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        false => which.names.clone(),
    };
    let of = if of.is_empty() { String::new() } else { format!(" of {}", of.join(", ")) };
    match &which.domain {
        Some(key) => format!("{count} {key}{of}"),
        None if which.count == Some(1) => format!("1 node{of}"),
        None => format!("{count} nodes{of}"),
    }
}

/// What nodes do in this state, for one or for several.
pub fn node_state(state: &NodeState, one: bool) -> String {
    let (of_one, of_many) = match state {
        NodeState::Silent => ("falls silent", "fall silent"),
        NodeState::NotReady => ("is not ready", "are not ready"),
        NodeState::Deleted => ("is deleted", "are deleted"),
        NodeState::Drained => ("is drained", "are drained"),
        NodeState::UnhealthyGpus(gpus) => {
            return format!("{} GPUs {gpus}", if one { "loses" } else { "lose" });
        }
    };
    (if one { of_one } else { of_many }).to_owned()
}

pub fn server(state: ServerState) -> &'static str {
    match state {
        ServerState::Down => "the API server is down",
        ServerState::DropsConnections => "all connections break",
        ServerState::ForgetsVersions => "all connections break, and old versions are forgotten",
    }
}

/// What becomes of which requests: `0.2 of create pods/binding by services: 503`.
pub fn requests(from: &[Caller], matching: &Matching, part: u16, fault: &Fault) -> String {
    let any = |list: &[String], word: &str| match list {
        [] => word.to_owned(),
        list => list.join("|"),
    };
    let mut text = String::new();
    if part < 1000 {
        text += &format!("{} of ", share(part));
    }
    text +=
        &format!("{} {}", any(&matching.verbs, "all requests to"), any(&matching.resources, "everything"));
    if !matching.names.is_empty() {
        text += &format!(" {}", matching.names.join("|"));
    }
    let from: Vec<&str> = from
        .iter()
        .map(|caller| match caller {
            Caller::Clients => "clients",
            Caller::Services => "services",
            Caller::Simulation => "the simulation",
        })
        .collect();
    text += &format!(" by {}", from.join(" and "));
    let fate = match fault {
        Fault::Status(code) => format!("status {code}"),
        Fault::Silence => "no answer".to_owned(),
        Fault::Delay(delay) => format!("{} late", span(*delay)),
        Fault::LostAnswer => "carried out, and the answer is lost".to_owned(),
        Fault::CutWatch { after } => format!("cut after {after} events"),
        Fault::ExpireWatch { after } => format!("expired after {after} events"),
        Fault::StallWatch { after } => format!("silent after {after} events"),
        Fault::RepeatEvents(chance) => format!("{} of the events twice", share(*chance)),
        Fault::DropEvents(chance) => format!("{} of the events lost", share(*chance)),
    };
    format!("{text}: {fate}")
}

/// `0.2` for 200 in a thousand.
fn share(per_thousand: u16) -> String {
    let text = format!("{}.{:03}", per_thousand / 1000, per_thousand % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `1h2m3s`, `1.5s`, `200ms`: as the file would say it.
pub fn span(span: Duration) -> String {
    let millis = span.as_millis();
    let (seconds, rest) = (millis / 1000, millis % 1000);
    if seconds == 0 && rest > 0 {
        return format!("{rest}ms");
    }
    let mut text = String::new();
    for (n, unit) in [(seconds / 3600, "h"), (seconds / 60 % 60, "m")] {
        if n > 0 {
            text += &format!("{n}{unit}");
        }
    }
    let seconds = seconds % 60;
    if rest > 0 {
        text += format!("{seconds}.{rest:03}").trim_end_matches('0');
        text += "s";
    } else if seconds > 0 || text.is_empty() {
        text += &format!("{seconds}s");
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::Chaos;

    #[track_caller]
    fn check(fault: &str, expected: &str) {
        let chaos = Chaos::parse("c.yaml", &format!("faults:\n- {fault}\n")).unwrap();
        assert_eq!(chaos.describe(), [expected]);
    }

    #[test]
    fn plans() {
        check(
            "{name: power, at: 30s, every: 5m, for: 2m, node: {state: silent}}",
            "power: after 30s, every 5m, for 2m: 1 node falls silent",
        );
        check(
            "{at: 90m, jitter: 1.5s, probability: 0.25, node: {state: deleted, domain: example.com/rack, count: 2}}",
            "faults[0]: after 1h30m and up to 1.5s more, with a chance of 0.25: 2 example.com/rack are deleted",
        );
        check(
            "{node: {state: unhealthyGpus, gpus: '0,3', names: [a, b]}}",
            "faults[0]: after 0s: all nodes of a, b lose GPUs 0,3",
        );
        check(
            "{for: 10m, api: {verbs: [create], resources: [pods/binding], from: [services], share: 0.2, delay: 200ms}}",
            "faults[0]: after 0s, for 10m: 0.2 of create pods/binding by services: 200ms late",
        );
        check(
            "{api: {status: 503}}",
            "faults[0]: after 0s: all requests to everything by clients and services: status 503",
        );
        check(
            "{watch: {resources: [pods], cutAfter: 3}}",
            "faults[0]: after 0s: watch pods by clients and services: cut after 3 events",
        );
        check(
            "{every: 1h, times: 3, server: dropsConnections}",
            "faults[0]: after 0s, every 1h, 3 times: all connections break",
        );
        check(
            "{at: 1m, for: 20s, services: killed}",
            "faults[0]: after 1m, for 20s: Muster's services are killed",
        );
    }
}
