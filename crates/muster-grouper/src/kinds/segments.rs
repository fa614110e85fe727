//! Workers cut into segments that each want to be near together.
//!
//! In: the annotations of a worker template (or of the pod, if it is a worker). Out: the size of a segment, and where it
//! wants to be.

use serde_json::Value;

use super::numbers::text;
use crate::group::{Ask, Grouping, MOST_GROUPS, Topology};
use crate::keys;

/// Where the annotations of workers are.
pub struct Worker<'a> {
    /// The template of the workers.
    pub template: &'a Value,
    /// Whether this pod is one: then what it says itself comes first.
    pub is_pod: bool,
}

impl Worker<'_> {
    pub fn annotation<'a>(&'a self, ask: &'a Ask<'_>, key: &str) -> Option<&'a str> {
        let own = ask.pod.metadata.annotation(key).filter(|value| self.is_pod && !value.is_empty());
        own.or_else(|| text(self.template, &["metadata", "annotations", key]))
    }

    /// Where segments want to be; the topology may be named by the whole workload.
    pub fn topology(&self, ask: &Ask<'_>) -> Topology {
        let wish = |key| self.annotation(ask, key).unwrap_or_default().to_owned();
        let topology = match wish(keys::TOPOLOGY) {
            own if own.is_empty() => ask.subject.annotation(keys::TOPOLOGY).unwrap_or_default().to_owned(),
            own => own,
        };
        let topology = Topology {
            topology,
            required: wish(keys::SEGMENT_REQUIRED),
            preferred: wish(keys::SEGMENT_PREFERRED),
        };
        if topology.topology.is_empty() || topology.has_no_level() { Topology::default() } else { topology }
    }
}

/// Reads the size of a segment of `n` pods. A size that cannot be is noted, and then there are no segments.
pub fn size(
    grouping: &mut Grouping,
    object: &str,
    written: &str,
    least: i64,
    most: i64,
    n: i64,
) -> Option<i64> {
    let why = match written.trim().parse::<i64>() {
        Ok(size) if size < least || size > most => format!("must be from {least} to {most}"),
        Ok(size) if n / size >= MOST_GROUPS as i64 => {
            format!("would make more than {MOST_GROUPS} segments of {n} pods")
        }
        Ok(size) => return Some(size),
        Err(_) => "is no whole number".to_owned(),
    };
    let shown: String = written.chars().take(60).collect();
    grouping.note(format!(
        "the segment size of {object} is {shown:?}, which {why}: its pods are not cut into segments. Write for example {}: \"8\"",
        keys::SEGMENT_SIZE,
    ));
    None
}
