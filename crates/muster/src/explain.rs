//! `muster explain`: why a gang is where it is, or why it waits and what would help.

use crate::Exit;
use crate::simulate::{Format, Input, played, say_notes};
use anyhow::bail;
use muster_model::Key;
use muster_scenario::{Case, Moment, Phase, PodOutcome, words};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster explain -f cluster.yaml train                  the gang of this name\n  muster explain -f cluster.yaml pod/train-0            the gang of this pod\n  muster explain -f cluster.yaml pytorchjob/train -n ml -o json\n\nIt decides one cycle on the objects of the manifests and says what came of the gang. Nothing is changed anywhere."
)]
pub struct Args {
    #[command(flatten)]
    input: Input,
    /// A gang, or KIND/NAME of a pod group, a pod or an owner of pods
    #[arg(value_name = "KIND/NAME")]
    subject: String,
    /// Its namespace; all of them otherwise
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let Args { input, subject, namespace, output } = args;
    let case = input.case(1)?;
    let outcome = played(&case, true)?;
    say_notes(&case, &outcome);
    let Some(moment) = outcome.moments.first() else { bail!("nothing came of the cycle") };
    let gangs = gangs_meant(&case, moment, &subject, namespace.as_deref());
    let gang = match gangs.as_slice() {
        [gang] => gang,
        [] => {
            let known: Vec<String> = moment.gangs.keys().map(Key::to_string).collect();
            bail!("no gang, pod or owner is called {subject}\nhint: the gangs are {}", known.join(", "));
        }
        several => {
            let names: Vec<String> = several.iter().map(Key::to_string).collect();
            bail!("{subject} may mean {}\nhint: say which namespace with -n", names.join(" or "));
        }
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match output {
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &as_json(moment, gang))?;
            writeln!(out)?;
        }
        Format::Table => write!(out, "{}", as_text(moment, gang))?,
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// The gangs that a name may mean.
fn gangs_meant(case: &Case, moment: &Moment, subject: &str, namespace: Option<&str>) -> Vec<Key> {
    let (kind, name) = subject.split_once('/').unwrap_or(("", subject));
    let kind = kind.to_lowercase();
    let there = |key: &Key| namespace.is_none_or(|n| *key.namespace == *n);
    let mut found: Vec<Key> = Vec::new();
    if matches!(kind.as_str(), "" | "gang" | "gangs" | "podgroup" | "podgroups" | "pg") {
        found.extend(moment.gangs.keys().filter(|k| *k.name == *name && there(k)).cloned());
    }
    if found.is_empty() && matches!(kind.as_str(), "" | "pod" | "pods" | "po") {
        found.extend(
            case.objects.iter().filter(|o| o["kind"] == "Pod" && o["metadata"]["name"] == name).filter_map(
                |pod| {
                    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
                    let pod = moment.pods.get(&format!("{namespace}/{name}"))?;
                    pod.gang.clone().filter(there)
                },
            ),
        );
    }
    if found.is_empty() {
        let singular = kind.strip_suffix('s').unwrap_or(&kind);
        let owns = |owner: &Value| {
            let own = owner["kind"].as_str().unwrap_or_default().to_lowercase();
            owner["name"] == name && (kind.is_empty() || own == kind || own == singular)
        };
        for object in &case.objects {
            let owned = object["metadata"]["ownerReferences"].as_array().is_some_and(|o| o.iter().any(owns));
            let meta = &object["metadata"];
            let namespace = meta["namespace"].as_str().unwrap_or("default");
            let (true, Some(own)) = (owned, meta["name"].as_str()) else { continue };
            let key = Key::new(namespace, own);
            let gang = match object["kind"].as_str() {
                Some("Pod") => moment.pods.get(&key.to_string()).and_then(|p| p.gang.clone()),
                Some("PodGroup") => moment.gangs.contains_key(&key).then_some(key),
                _ => None,
            };
            found.extend(gang.filter(there));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn members<'a>(moment: &'a Moment, gang: &Key) -> Vec<(&'a String, &'a PodOutcome)> {
    moment.pods.iter().filter(|(_, pod)| pod.gang.as_ref() == Some(gang)).collect()
}

fn as_text(moment: &Moment, gang: &Key) -> String {
    let pods = members(moment, gang);
    let mut text = String::new();
    if let Some(refusal) = moment.refusals.get(gang) {
        text.push_str(&format!("{}\n", words::headline(refusal)));
        for reason in &refusal.reasons {
            text.push_str(&format!("  {}\n", words::reason(reason)));
        }
        if !refusal.remedies.is_empty() {
            text.push_str("What would help:\n");
            for remedy in &refusal.remedies {
                text.push_str(&format!("  {}\n", words::remedy(remedy)));
            }
        }
    } else if pods.is_empty() {
        text.push_str(&format!("{gang} has no pods, so there is nothing to place\n"));
    } else {
        text.push_str(&format!("{gang} is placed\n"));
    }
    for (phase, one, many) in [
        (Phase::Running, "runs on", "run on"),
        (Phase::Bound, "is to be bound to", "are to be bound to"),
        (
            Phase::Pipelined,
            "is promised room that is being freed on",
            "are promised room that is being freed on",
        ),
        (Phase::Evicted, "is leaving", "are leaving"),
    ] {
        let mut nodes: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, pod) in pods.iter().filter(|(_, pod)| pod.phase == phase) {
            *nodes.entry(pod.node.as_deref().unwrap_or("an unknown node")).or_default() += 1;
        }
        for (node, n) in nodes {
            let said = if n == 1 { format!("1 pod {one}") } else { format!("{n} pods {many}") };
            text.push_str(&format!("  {said} {node}\n"));
        }
    }
    text
}

fn as_json(moment: &Moment, gang: &Key) -> Value {
    let placed: Vec<Value> = members(moment, gang)
        .into_iter()
        .map(|(name, pod)| json!({"pod": name, "phase": pod.phase.name(), "node": pod.node.as_deref()}))
        .collect();
    let mut value = match moment.refusals.get(gang) {
        Some(refusal) => words::refusal_json(refusal),
        None => json!({"gang": gang.to_string(), "reasons": [], "remedies": []}),
    };
    value["pods"] = json!(placed);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Time;
    use muster_scenario::{DEFAULT_NOW, cases_of, manifests};

    /// A cluster in short hand, after one cycle.
    fn moment(cluster: &str) -> (Case, Moment) {
        let text = format!("name: x\nexpect: {{totals: {{evicted: 0}}}}\ncluster: {cluster}\n");
        let case = cases_of(&manifests(&text).unwrap()[0], "file").unwrap().remove(0);
        let Time(now) = case.now;
        assert_eq!(now, DEFAULT_NOW.0);
        let moment = played(&case, true).unwrap().moments.remove(0);
        (case, moment)
    }

    const CLUSTER: &str = "{nodes: [{name: a, gpu: 8}], queues: [{name: q}], gangs: [
        {name: here, pods: 2, gpu: 1, on: a}, {name: next, gpu: 1}, {name: next, namespace: other, gpu: 1}]}";

    #[test]
    fn a_placed_gang_says_where() {
        let (_, moment) = moment(CLUSTER);
        assert_eq!(
            as_text(&moment, &Key::new("default", "here")),
            "default/here is placed\n  2 pods run on a\n"
        );
        assert_eq!(
            as_text(&moment, &Key::new("default", "next")),
            "default/next is placed\n  1 pod is to be bound to a\n"
        );
    }

    #[test]
    fn a_name_may_mean_a_gang_a_pod_or_an_owner() {
        let (mut case, moment) = moment(CLUSTER);
        for pod in case.objects.iter_mut().filter(|o| o["metadata"]["name"] == "here-0") {
            pod["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "big"}]);
        }
        let meant = |subject: &str, namespace: Option<&str>| -> Vec<String> {
            gangs_meant(&case, &moment, subject, namespace).iter().map(Key::to_string).collect()
        };
        assert_eq!(meant("here", None), ["default/here"]);
        assert_eq!(meant("podgroup/here", None), ["default/here"]);
        assert_eq!(meant("pod/here-1", None), ["default/here"]);
        assert_eq!(meant("jobs/big", None), ["default/here"]);
        assert_eq!(meant("next", None), ["default/next", "other/next"]);
        assert_eq!(meant("next", Some("other")), ["other/next"]);
        assert!(meant("job/here", None).is_empty());
    }
}
