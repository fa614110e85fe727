//! A configuration file, as Grove's operator has one, to options.
//!
//! In: an OperatorConfiguration (`operator.config.grove.io/v1alpha1`) as JSON, with a section `muster` for what Grove has no word
//! for. Out: the options that it asks for, and a warning for each field that has no effect here; [`ConfigError`] for what makes no
//! sense. Must stay true: what is not said stays as it was; no input panics.
//!
//! ```
//! let file = serde_json::json!({
//!     "scheduler": {"profiles": [{"name": "kai-scheduler"}], "defaultProfileName": "kai-scheduler"},
//!     "muster": {"routes": {"team-scheduler": "volcano"}, "backends": ["kai", "volcano", "default"]},
//! });
//! let (config, warnings) = muster_grove::config::read(&file, Default::default()).unwrap();
//! assert_eq!(config.options.route(""), muster_grove::BackendName::Kai);
//! assert_eq!(config.options.route("team-scheduler"), muster_grove::BackendName::Volcano);
//! assert!(warnings.is_empty());
//! ```

use serde_json::Value;

use crate::duration;
use crate::settings::{BackendName, GroupNames, Options, StartStep};

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    pub options: Options,
    /// Whether what belongs to a set is kept from others.
    pub protect: bool,
    /// Users that may change it all the same.
    pub exempt_users: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ConfigError {
    pub field: String,
    pub message: String,
}

fn wrong(field: &str, message: impl Into<String>) -> ConfigError {
    ConfigError { field: field.to_owned(), message: message.into() }
}

const KIND: &str = "OperatorConfiguration";
/// Fields of Grove's that are flags of `muster run`, or that nothing here needs.
const ELSEWHERE: &[(&str, &str)] = &[
    ("runtimeClientConnection", "requests are not limited by the client"),
    ("leaderElection", "there is always one at a time; its lease is in --namespace"),
    ("server", "see --webhook-address, --metrics-address and --health-address"),
    ("debugging", "there is no profiler"),
    ("logLevel", "see the variable MUSTER_LOG"),
    ("logFormat", "see --log-json"),
];
const KNOWN: &[&str] = &[
    "apiVersion",
    "kind",
    "scheduler",
    "topologyAwareScheduling",
    "network",
    "authorizer",
    "controllers",
    "muster",
];
const OWN: &[&str] = &[
    "backends",
    "routes",
    "gate",
    "kaiPodGroupNames",
    "kaiDefaultQueue",
    "volcanoDefaultQueue",
    "koordinatorWaitingTime",
    "startStepImage",
];

/// What a file says, on top of options.
pub fn read(file: &Value, options: Options) -> Result<(Config, Vec<String>), ConfigError> {
    let mut config = Config { options, ..Config::default() };
    let mut warnings = Vec::new();
    let map = match file {
        Value::Null => return Ok((config, warnings)),
        Value::Object(map) => map,
        _ => return Err(wrong("", "is no mapping; write one with apiVersion, kind and scheduler")),
    };
    if let Some(kind) = map.get("kind")
        && kind != KIND
    {
        return Err(wrong("kind", format!("is {kind}; write {KIND}")));
    }
    for key in map.keys() {
        if let Some((_, why)) = ELSEWHERE.iter().find(|(known, _)| known == key) {
            warnings.push(format!("{key}: has no effect: {why}"));
        } else if !KNOWN.contains(&key.as_str()) {
            warnings.push(format!("{key}: is not known and has no effect"));
        }
    }
    read_own(file.get("muster").unwrap_or(&Value::Null), &mut config.options, &mut warnings)?;
    read_profiles(
        file.get("scheduler").unwrap_or(&Value::Null),
        file.pointer("/muster/backends").is_some(),
        &mut config.options,
        &mut warnings,
    )?;
    if let Some(on) = flag(file, "/topologyAwareScheduling/enabled")? {
        config.options.topology = on;
    }
    if let Some(on) = flag(file, "/network/autoMNNVLEnabled")? {
        config.options.mnnvl = on;
    }
    if let Some(on) = flag(file, "/authorizer/enabled")? {
        config.protect = on;
    }
    if let Some(users) = file.pointer("/authorizer/exemptServiceAccountUserNames") {
        config.exempt_users = texts(users, "authorizer.exemptServiceAccountUserNames")?;
    }
    let syncs = ["podCliqueSet", "podClique", "podCliqueScalingGroup", "podGang"]
        .iter()
        .filter_map(|name| file.pointer(&format!("/controllers/{name}/concurrentSyncs")));
    let most = syncs.filter_map(Value::as_u64).max().and_then(|n| usize::try_from(n).ok());
    if let Some(n) = most.filter(|n| *n > 0) {
        config.options.workers = n.min(1024);
    }
    Ok((config, warnings))
}

/// Grove's profiles: the schedulers that may be named, and which of them is meant when none is.
fn read_profiles(
    scheduler: &Value,
    has_own: bool,
    options: &mut Options,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let profiles = match scheduler.get("profiles") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(profiles)) => profiles.as_slice(),
        Some(_) => return Err(wrong("scheduler.profiles", "is no list; write entries with a name")),
    };
    let mut enabled: Vec<BackendName> = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        let field = format!("scheduler.profiles[{index}].name");
        let name = profile.get("name").and_then(Value::as_str).unwrap_or("");
        if name.is_empty() {
            return Err(wrong(&field, "is missing; write the name of a scheduler"));
        }
        if !options.knows(name) {
            let message =
                format!("{name} is not known; it is taken for KAI, unless muster.routes says what it is");
            warnings.push(format!("{field}: {message}"));
        }
        enabled.push(options.route(name));
    }
    // A list of ours is the last word; Grove's leaves out whom it does not name, but never Kubernetes' own scheduler.
    if !profiles.is_empty() && !has_own {
        enabled.push(BackendName::Default);
        options.enabled = BackendName::ALL.into_iter().filter(|name| enabled.contains(name)).collect();
    }
    match scheduler.get("defaultProfileName").and_then(Value::as_str).unwrap_or("") {
        "" | "default-scheduler" => {}
        name => {
            if !profiles.iter().any(|p| p.get("name").and_then(Value::as_str) == Some(name)) {
                let message = format!("{name} is none of the profiles; add it there");
                return Err(wrong("scheduler.defaultProfileName", message));
            }
            options.default_scheduler = name.to_owned();
        }
    }
    Ok(())
}

fn read_own(own: &Value, options: &mut Options, warnings: &mut Vec<String>) -> Result<(), ConfigError> {
    for key in own.as_object().into_iter().flat_map(serde_json::Map::keys) {
        if !OWN.contains(&key.as_str()) {
            warnings.push(format!("muster.{key}: is not known and has no effect"));
        }
    }
    if let Some(names) = own.get("backends") {
        options.enabled = Vec::new();
        for name in texts(names, "muster.backends")? {
            options.enabled.push(backend(&name, "muster.backends")?);
        }
    }
    if let Some(routes) = own.get("routes") {
        let routes = routes.as_object().ok_or_else(|| wrong("muster.routes", "is no mapping"))?;
        for (scheduler, name) in routes {
            let field = format!("muster.routes[{scheduler}]");
            options.routes.insert(scheduler.clone(), backend(name.as_str().unwrap_or(""), &field)?);
        }
    }
    let text = |key: &str| -> Result<Option<String>, ConfigError> {
        match own.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(wrong(&format!("muster.{key}"), "is no text")),
        }
    };
    if let Some(gate) = text("gate")? {
        options.gate = gate;
    }
    if let Some(names) = text("kaiPodGroupNames")? {
        options.kai_group_names = match names.as_str() {
            "WithUid" => GroupNames::WithUid,
            "LikeGang" => GroupNames::LikeGang,
            _ => return Err(wrong("muster.kaiPodGroupNames", "must be WithUid or LikeGang")),
        };
    }
    if let Some(queue) = text("kaiDefaultQueue")? {
        options.kai_default_queue = queue;
    }
    if let Some(queue) = text("volcanoDefaultQueue")? {
        options.volcano_default_queue = queue;
    }
    if let Some(time) = text("koordinatorWaitingTime")? {
        let time = duration::parse(&time)
            .ok_or_else(|| wrong("muster.koordinatorWaitingTime", "must be a duration, such as 10m"))?;
        options.koordinator_waiting_seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    }
    if let Some(image) = text("startStepImage")? {
        options.start_step = StartStep::Image(image);
    }
    Ok(())
}

/// A backend by its name, or which there are.
pub fn backend(name: &str, field: &str) -> Result<BackendName, ConfigError> {
    BackendName::read(name).ok_or_else(|| {
        let all: Vec<&str> = BackendName::ALL.iter().map(|name| name.as_str()).collect();
        wrong(field, format!("{name:?} is no backend; there are {}", all.join(", ")))
    })
}

fn flag(file: &Value, pointer: &str) -> Result<Option<bool>, ConfigError> {
    match file.pointer(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(on)) => Ok(Some(*on)),
        Some(_) => {
            Err(wrong(&pointer.trim_start_matches('/').replace('/', "."), "is neither true nor false"))
        }
    }
}

fn texts(value: &Value, field: &str) -> Result<Vec<String>, ConfigError> {
    let list = value.as_array().ok_or_else(|| wrong(field, "is no list"))?;
    let text =
        |item: &Value| item.as_str().map(str::to_owned).ok_or_else(|| wrong(field, "has what is no text"));
    list.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(file: Value, change: impl FnOnce(&mut Config), warned: &[&str]) {
        let mut expected = Config::default();
        change(&mut expected);
        let (config, warnings) = read(&file, Options::default()).unwrap();
        assert_eq!(config, expected, "{file}");
        let fields: Vec<&str> = warnings.iter().map(|w| w.split(": ").next().unwrap()).collect();
        assert_eq!(fields, warned, "{warnings:?}");
    }

    #[track_caller]
    fn refused(file: Value, field: &str) {
        assert_eq!(read(&file, Options::default()).unwrap_err().field, field, "{file}");
    }

    #[test]
    fn what_a_file_says() {
        use BackendName::{Default, Kai, Volcano};
        check(Value::Null, |_| {}, &[]);
        check(
            json!({"apiVersion": "operator.config.grove.io/v1alpha1", "kind": "OperatorConfiguration"}),
            |_| {},
            &[],
        );
        check(
            json!({"scheduler": {"profiles": [{"name": "kai-scheduler"}]}}),
            |c| c.options.enabled = vec![Kai, Default],
            &[],
        );
        check(
            json!({"scheduler": {"profiles": [{"name": "volcano"}, {"name": "lpx-scheduler"}], "defaultProfileName": "volcano"}}),
            |c| {
                c.options.enabled = vec![Kai, Default, Volcano];
                c.options.default_scheduler = "volcano".into();
            },
            &["scheduler.profiles[1].name"],
        );
        check(
            json!({"muster": {"backends": ["volcano"], "routes": {"mine": "volcano"}, "kaiPodGroupNames": "LikeGang",
                              "koordinatorWaitingTime": "5m", "other": 1}}),
            |c| {
                c.options.enabled = vec![Volcano];
                c.options.routes.insert("mine".into(), Volcano);
                c.options.kai_group_names = GroupNames::LikeGang;
                c.options.koordinator_waiting_seconds = 300;
            },
            &["muster.other"],
        );
        check(
            json!({"topologyAwareScheduling": {"enabled": false}, "network": {"autoMNNVLEnabled": true}, "logLevel": "info",
                   "authorizer": {"enabled": true, "exemptServiceAccountUserNames": ["u"]},
                   "controllers": {"podClique": {"concurrentSyncs": 20}}}),
            |c| {
                c.options.topology = false;
                c.options.mnnvl = true;
                c.protect = true;
                c.exempt_users = vec!["u".into()];
                c.options.workers = 20;
            },
            &["logLevel"],
        );
    }

    #[test]
    fn what_makes_no_sense() {
        refused(json!([]), "");
        refused(json!({"kind": "Pod"}), "kind");
        refused(json!({"muster": {"backends": ["lpx"]}}), "muster.backends");
        refused(json!({"muster": {"routes": {"a": 5}}}), "muster.routes[a]");
        refused(json!({"scheduler": {"profiles": [{}]}}), "scheduler.profiles[0].name");
        refused(
            json!({"scheduler": {"defaultProfileName": "kai-scheduler"}}),
            "scheduler.defaultProfileName",
        );
        refused(json!({"network": {"autoMNNVLEnabled": "yes"}}), "network.autoMNNVLEnabled");
    }

    proptest! {
        #[test]
        fn nothing_panics(key in "[a-z]{1,8}", text in ".{0,12}", number in any::<i64>()) {
            for value in [json!(text), json!(number), json!([text]), json!({key.clone(): number})] {
                for field in ["scheduler", "muster", "authorizer", "controllers", "network", key.as_str()] {
                    let _ = read(&json!({field: value}), Options::default());
                }
            }
        }
    }
}
