//! Volcano's configuration file, followed by looking at its text: mounted ConfigMaps are replaced behind a link, which no watch of a file sees.
//!
//! In: a path. Out: the configuration as an input for the core whenever the text is another one. A file that cannot be read or makes no sense changes
//! nothing; what is wrong with it is logged and told as events of the scheduler's own.

use crate::ingest::Input;
use muster_runtime::Events;
use muster_runtime::object::Meta;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(5);

pub struct File {
    path: PathBuf,
    /// What it said when it was last looked at, or why it could not be read.
    last: Option<Result<String, String>>,
}

impl File {
    pub fn new(path: PathBuf) -> Self {
        Self { path, last: None }
    }

    /// Looks at the file, and hands the configuration on if there is something new.
    pub fn look(&mut self, events: &Events, inputs: &UnboundedSender<Input>) {
        let text = std::fs::read_to_string(&self.path).map_err(|error| error.to_string());
        if self.last.as_ref() == Some(&text) {
            return;
        }
        let read = text.clone().and_then(|text| parse(&text));
        self.last = Some(text);
        let file = self.path.display();
        match read {
            Ok((config, warnings)) => {
                for warning in warnings {
                    tracing::warn!(%file, "{warning}");
                    tell(events, warning);
                }
                tracing::info!(%file, "Volcano's configuration was read");
                // The receiver goes away only when everything ends.
                let _ = inputs.send(Input::Volcano(config));
            }
            Err(error) => {
                tracing::error!(%file, error, "Volcano's configuration cannot be read; the one before stays");
                tell(events, format!("{file} cannot be read: {error}"));
            }
        }
    }

    /// Looks again and again.
    pub async fn watch(mut self, events: Events, inputs: UnboundedSender<Input>) {
        while !inputs.is_closed() {
            tokio::time::sleep(PERIOD).await;
            self.look(&events, &inputs);
        }
    }
}

/// The configuration in a text, and what in it makes no sense.
fn parse(text: &str) -> Result<(Value, Vec<String>), String> {
    let mut documents = muster_scenario::manifests(text)?;
    let config = match documents.len() {
        0 => Value::Object(serde_json::Map::new()),
        1 => documents.remove(0),
        n => return Err(format!("there are {n} documents; write one")),
    };
    if !config.is_object() {
        return Err("it must be a mapping with actions and tiers".into());
    }
    let (_, warnings) = muster_translate::volcano::conf::read(&config);
    Ok((config, warnings.iter().map(ToString::to_string).collect()))
}

/// The configuration is no object, so its events are of the namespace where the scheduler's settings are.
fn tell(events: &Events, message: String) {
    let metadata = Meta {
        name: "volcano-scheduler-configmap".into(),
        namespace: "volcano-system".into(),
        ..Meta::default()
    };
    events.warning(&ConfigMap { metadata }, "InvalidConfiguration", message);
}

muster_runtime::kinds! {
    ConfigMap = "" "v1" "ConfigMap" "configmaps";
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: Meta,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_with_what_is_wrong_in_it() {
        let (config, warnings) = parse(
            "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: gang\n  - name: binpack\n    arguments:\n      binpack.wieght: 2\n",
        )
        .unwrap();
        assert_eq!(config["actions"], "enqueue, allocate, backfill");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("binpack.weight"), "{warnings:?}");
        assert!(parse("- a").is_err());
        assert!(parse("a: [").is_err());
        assert_eq!(parse("").unwrap().0, serde_json::json!({}));
    }
}
