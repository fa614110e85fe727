//! What can be chosen, in the form of Kueue's own configuration file.
//!
//! In: a `Configuration` of `config.kueue.x-k8s.io`, as text. Out: [`Settings`], and a warning for each key that has no effect, with the spelling that
//! was perhaps meant. Must stay true: what is not said is as Kueue has it; no input panics.

use std::time::Duration;

use muster_translate::kueue::Context;
use serde_json::Value;

use crate::object::{at, int, list, text};

/// How long pods may take to get ready, and what comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodsReady {
    pub timeout: Duration,
    /// For pods that were ready before; zero: they may take as long as they like.
    pub recovery: Duration,
    /// So often a workload is tried again; `None`: for ever.
    pub most: Option<i64>,
    pub base: Duration,
    pub longest: Duration,
}

impl Default for PodsReady {
    fn default() -> Self {
        PodsReady {
            timeout: Duration::from_secs(30 * 60),
            recovery: Duration::from_secs(30 * 60),
            most: None,
            base: Duration::from_secs(60),
            longest: Duration::from_secs(3600),
        }
    }
}

/// What is looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// Jobs without a queue wait too, and for ever.
    pub without_queue: bool,
    /// Namespaces that jobs are managed in; in others even those that name a queue are left alone.
    pub namespaces: muster_runtime::object::Selector,
    /// The kinds of jobs that are looked after, such as `batch/job`.
    pub frameworks: Vec<String>,
}

impl Default for Managed {
    fn default() -> Self {
        Managed {
            without_queue: false,
            namespaces: not_in(&["kube-system", "kueue-system", "muster-system"]),
            frameworks: FRAMEWORKS.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Managed {
    pub fn has(&self, framework: &str) -> bool {
        self.frameworks.iter().any(|f| f == framework)
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub managed: Managed,
    /// Labels of jobs that their workloads get too.
    pub labels_to_copy: Vec<String>,
    /// `None`: nobody waits for pods to be ready.
    pub pods_ready: Option<PodsReady>,
    /// Finished workloads are deleted after this long.
    pub after_finished: Option<Duration>,
    /// Jobs of workloads that were deactivated by us are deleted after this long.
    pub after_deactivated: Option<Duration>,
    /// How decisions are made.
    pub admit: muster_admit::Settings,
    /// How requests are counted.
    pub context: Context,
    /// A workload is admitted only if its pods have a place.
    pub require_placement: bool,
}

/// What Kueue's own configuration looks after when it does not say so, and what Muster does besides.
const FRAMEWORKS: &[&str] = &["batch/job", "pod"];

impl Default for Settings {
    fn default() -> Self {
        Settings {
            managed: Managed::default(),
            labels_to_copy: Vec::new(),
            pods_ready: Some(PodsReady::default()),
            after_finished: None,
            after_deactivated: None,
            admit: muster_admit::Settings::default(),
            context: Context::default(),
            require_placement: false,
        }
    }
}

fn not_in(names: &[&str]) -> muster_runtime::object::Selector {
    muster_runtime::object::Selector {
        match_expressions: vec![muster_runtime::object::Requirement {
            key: "kubernetes.io/metadata.name".into(),
            operator: "NotIn".into(),
            values: names.iter().map(ToString::to_string).collect(),
        }],
        ..Default::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("the configuration is no YAML: {0}")]
    Yaml(String),
    #[error("{field}: {message}")]
    Field { field: String, message: String },
}

fn wrong(field: &str, message: impl Into<String>) -> SettingsError {
    SettingsError::Field { field: field.to_owned(), message: message.into() }
}

/// Keys by where they are; a key with nothing below it is not looked into.
const KEYS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "apiVersion",
            "kind",
            "metadata",
            "namespace",
            "webhook",
            "leaderElection",
            "metrics",
            "health",
            "pprofBindAddress",
            "controller",
            "tls",
            "manageJobsWithoutQueueName",
            "managedJobsNamespaceSelector",
            "internalCertManagement",
            "clientConnection",
            "waitForPodsReady",
            "integrations",
            "multiKueue",
            "fairSharing",
            "admissionFairSharing",
            "resources",
            "featureGates",
            "objectRetentionPolicies",
            "visibilityServer",
            "muster",
        ],
    ),
    ("waitForPodsReady", &["enable", "timeout", "recoveryTimeout", "blockAdmission", "requeuingStrategy"]),
    (
        "waitForPodsReady.requeuingStrategy",
        &["timestamp", "backoffLimitCount", "backoffBaseSeconds", "backoffMaxSeconds"],
    ),
    ("integrations", &["frameworks", "externalFrameworks", "labelKeysToCopy", "podOptions"]),
    ("fairSharing", &["enable", "preemptionStrategies"]),
    ("admissionFairSharing", &["usageHalfLifeTime", "usageSamplingInterval", "resourceWeights"]),
    (
        "resources",
        &["quotaCheckStrategy", "excludeResourcePrefixes", "transformations", "deviceClassMappings"],
    ),
    ("objectRetentionPolicies", &["workloads"]),
    ("objectRetentionPolicies.workloads", &["afterFinished", "afterDeactivatedByKueue"]),
    ("muster", &["requirePlacement"]),
];

/// Keys that mean something to Kueue and nothing here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("webhook", "see --webhook-address"),
    ("leaderElection", "there is always one at a time"),
    ("metrics", "see --metrics-address"),
    ("health", "see --health-address"),
    ("pprofBindAddress", "there is no profiler"),
    ("controller", "requests run side by side anyway"),
    ("tls", "it is as the binary has it"),
    ("internalCertManagement", "certificates are always made here"),
    ("clientConnection", "requests are not limited by the client"),
    ("multiKueue", "work is not sent to other clusters"),
    ("visibilityServer", "see muster get and muster explain"),
    ("resources.deviceClassMappings", "device classes are not counted against quota"),
    ("integrations.externalFrameworks", "others' jobs are left to them; their workloads are admitted"),
];

impl Settings {
    /// What a configuration file says, and what it says in vain.
    pub fn read(source: &str) -> Result<(Settings, Vec<String>), SettingsError> {
        Settings::default().with(source)
    }

    /// The same, where the file need not say what is so already.
    pub fn with(self, source: &str) -> Result<(Settings, Vec<String>), SettingsError> {
        let file: Value =
            serde_saphyr::from_str(source).map_err(|error| SettingsError::Yaml(error.to_string()))?;
        let mut settings = self;
        let mut warnings = Vec::new();
        if file.is_null() {
            return Ok((settings, warnings));
        }
        if !file.is_object() {
            return Err(wrong("", "is no mapping; write one with apiVersion and kind"));
        }
        if let Some(kind) = file.get("kind").filter(|kind| *kind != "Configuration") {
            return Err(wrong("kind", format!("is {kind}; write Configuration")));
        }
        let file = &file;
        spelled(file, &mut warnings);
        let (admit, context, diagnostics) = muster_translate::kueue::settings(file);
        settings.admit = admit;
        settings.context = context;
        warnings.extend(diagnostics.iter().map(ToString::to_string));
        for (gate, on) in at(file, &["featureGates"]).as_object().into_iter().flatten() {
            let mut known = settings.admit.gates;
            if !known.set(gate, true) && !is_gate(gate) {
                warnings.push(format!("featureGates.{gate}: ({on}) makes no difference here"));
            }
        }
        if let Some(on) = flag(file, &["manageJobsWithoutQueueName"])? {
            settings.managed.without_queue = on;
        }
        if let Some(selector) = file.get("managedJobsNamespaceSelector").filter(|s| !s.is_null()) {
            settings.managed.namespaces = serde_json::from_value(selector.clone())
                .map_err(|error| wrong("managedJobsNamespaceSelector", error.to_string()))?;
        }
        read_integrations(file, &mut settings, &mut warnings);
        settings.pods_ready = pods_ready(file)?;
        let retention = |field: &str| duration(file, &["objectRetentionPolicies", "workloads", field]);
        settings.after_finished = retention("afterFinished")?;
        settings.after_deactivated = retention("afterDeactivatedByKueue")?;
        if let Some(on) = flag(file, &["muster", "requirePlacement"])? {
            settings.require_placement = on;
        }
        Ok((settings, warnings))
    }

    pub fn has(&self, framework: &str) -> bool {
        self.managed.has(framework)
    }
}

/// Gates that are decided here, not where flavors are.
fn is_gate(name: &str) -> bool {
    matches!(
        name,
        "DisableWaitForPodsReady"
            | "LocalQueueDefaulting"
            | "ObjectRetentionPolicies"
            | "ManagedJobsNamespaceSelector"
    )
}

fn read_integrations(file: &Value, settings: &mut Settings, warnings: &mut Vec<String>) {
    let texts = |path: &[&str]| -> Vec<String> {
        list(file, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    settings.labels_to_copy = texts(&["integrations", "labelKeysToCopy"]);
    let frameworks = texts(&["integrations", "frameworks"]);
    if frameworks.is_empty() {
        return;
    }
    for (i, name) in frameworks.iter().enumerate() {
        if !FRAMEWORKS.contains(&name.as_str()) {
            warnings.push(format!(
                "integrations.frameworks[{i}]: {name} is not looked after yet; there are {}",
                FRAMEWORKS.join(", ")
            ));
        }
    }
    settings.managed.frameworks = frameworks;
}

fn pods_ready(file: &Value) -> Result<Option<PodsReady>, SettingsError> {
    let off = flag(file, &["waitForPodsReady", "enable"])? == Some(false)
        || flag(file, &["featureGates", "DisableWaitForPodsReady"])? == Some(true);
    if off {
        return Ok(None);
    }
    let mut out = PodsReady::default();
    if let Some(timeout) = duration(file, &["waitForPodsReady", "timeout"])? {
        out.timeout = timeout;
        out.recovery = timeout;
    }
    if let Some(recovery) = duration(file, &["waitForPodsReady", "recoveryTimeout"])? {
        out.recovery = recovery;
    }
    let strategy = ["waitForPodsReady", "requeuingStrategy"];
    let number = |field: &str| int(file, &[strategy[0], strategy[1], field]).filter(|n| *n >= 0);
    out.most = number("backoffLimitCount");
    let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(0));
    if let Some(base) = number("backoffBaseSeconds") {
        out.base = seconds(base);
    }
    if let Some(longest) = number("backoffMaxSeconds") {
        out.longest = seconds(longest);
    }
    let stamp = text(file, &[strategy[0], strategy[1], "timestamp"]);
    if !matches!(stamp, "" | "Eviction" | "Creation") {
        return Err(wrong(
            "waitForPodsReady.requeuingStrategy.timestamp",
            format!("is {stamp:?}; write Eviction or Creation"),
        ));
    }
    Ok(Some(out))
}

fn flag(file: &Value, path: &[&str]) -> Result<Option<bool>, SettingsError> {
    match at(file, path) {
        Value::Null => Ok(None),
        Value::Bool(on) => Ok(Some(*on)),
        other => Err(wrong(&path.join("."), format!("is {other}; write true or false"))),
    }
}

fn duration(file: &Value, path: &[&str]) -> Result<Option<Duration>, SettingsError> {
    match at(file, path) {
        Value::Null => Ok(None),
        value => {
            let read = value.as_str().and_then(|text| text.parse::<jiff::SignedDuration>().ok());
            let read = read.and_then(|duration| Duration::try_from(duration).ok());
            let words =
                || wrong(&path.join("."), format!("is {value}; write a duration such as 5m or 1h30m"));
            read.map(Some).ok_or_else(words)
        }
    }
}

/// Warns of keys that have no effect.
fn spelled(file: &Value, warnings: &mut Vec<String>) {
    for (place, known) in KEYS {
        let path: Vec<&str> = place.split('.').filter(|part| !part.is_empty()).collect();
        for key in at(file, &path).as_object().into_iter().flat_map(serde_json::Map::keys) {
            let full = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            if let Some((_, why)) = ELSEWHERE.iter().find(|(name, _)| *name == full) {
                warnings.push(format!("{full}: has no effect: {why}"));
            } else if !known.contains(&key.as_str()) {
                let near = muster_runtime::spelling::nearest(key, known.iter().copied());
                let hint = near.map_or(String::new(), |word| format!("; did you mean {word}?"));
                warnings.push(format!("{full}: is not known and has no effect{hint}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_as_kueue_has_it() {
        let (settings, warnings) = Settings::read(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\n\
             kind: Configuration\n\
             manageJobsWithoutQueueName: true\n\
             waitForPodsReady:\n  timeout: 5m\n  blockAdmission: true\n  requeuingStrategy:\n    timestamp: Creation\n    backoffLimitCount: 3\n    backoffBaseSeconds: 1\n\
             fairSharing:\n  preemptionStrategies: [LessThanInitialShare]\n\
             resources:\n  excludeResourcePrefixes: [internal/]\n  transformations:\n  - {input: cpu, strategy: Retain, outputs: {credits: 1}}\n\
             integrations:\n  frameworks: [batch/job]\n  labelKeysToCopy: [team]\n\
             objectRetentionPolicies:\n  workloads:\n    afterFinished: 1h30m\n\
             muster:\n  requirePlacement: true\n",
        )
        .unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        assert!(settings.managed.without_queue && settings.require_placement);
        assert!(settings.admit.block_until_ready && !settings.admit.by_eviction_time);
        assert_eq!(settings.admit.fair_sharing.as_ref().map(|f| f.strategies.len()), Some(1));
        assert_eq!(settings.context.transformations.len(), 1);
        let ready = settings.pods_ready.clone().unwrap();
        assert_eq!(
            (ready.timeout.as_secs(), ready.recovery.as_secs(), ready.most, ready.base.as_secs()),
            (300, 300, Some(3), 1)
        );
        assert_eq!(settings.after_finished, Some(Duration::from_secs(5400)));
        assert_eq!(settings.labels_to_copy, ["team"]);
        assert!(settings.has("batch/job") && !settings.has("pod"));
    }

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let (_, warnings) = Settings::read(source).unwrap();
        assert_eq!(warnings, expected, "{source}");
    }

    #[test]
    fn keys_that_have_no_effect() {
        check("", &[]);
        check(
            "waitForPodReady: {}",
            &["waitForPodReady: is not known and has no effect; did you mean waitForPodsReady?"],
        );
        check(
            "waitForPodsReady: {timeOut: 5m}",
            &["waitForPodsReady.timeOut: is not known and has no effect; did you mean timeout?"],
        );
        check("nonsense: 1", &["nonsense: is not known and has no effect"]);
        check(
            "clientConnection: {qps: 5}",
            &["clientConnection: has no effect: requests are not limited by the client"],
        );
        check(
            "integrations: {frameworks: [batch/job, ray.io/rayjob]}",
            &["integrations.frameworks[1]: ray.io/rayjob is not looked after yet; there are batch/job, pod"],
        );
        check("featureGates: {PartialAdmission: false, DisableWaitForPodsReady: true}", &[]);
        check(
            "featureGates: {NoSuchGate: true}",
            &["featureGates.NoSuchGate: (true) makes no difference here"],
        );
    }

    #[track_caller]
    fn check_wrong(source: &str, expected: &str) {
        assert_eq!(Settings::read(source).unwrap_err().to_string(), expected, "{source}");
    }

    #[test]
    fn what_makes_no_sense() {
        check_wrong("kind: Pod", "kind: is \"Pod\"; write Configuration");
        check_wrong(
            "manageJobsWithoutQueueName: maybe",
            "manageJobsWithoutQueueName: is \"maybe\"; write true or false",
        );
        check_wrong(
            "waitForPodsReady: {timeout: soon}",
            "waitForPodsReady.timeout: is \"soon\"; write a duration such as 5m or 1h30m",
        );
        check_wrong(
            "waitForPodsReady: {requeuingStrategy: {timestamp: Later}}",
            "waitForPodsReady.requeuingStrategy.timestamp: is \"Later\"; write Eviction or Creation",
        );
        assert!(Settings::read("[").is_err());
        assert!(Settings::read("[]").is_err());
    }
}
