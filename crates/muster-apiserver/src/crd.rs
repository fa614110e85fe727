//! CustomResourceDefinitions. In: a CRD object. Out: what to serve, or the refusals that its author must mend.
//!
//! Pure: reading, checking and naming only. The server decides when to install the result.

use crate::registry::{Served, Source, Subresource, api_version, table_name};
use crate::store::Revision;
use k8s_schema::{FieldError, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The finalizer that keeps a CRD until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Where a custom kind keeps what `/scale` reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Replicas wanted, as `spec.replicas`.
    pub spec: String,
    /// Replicas observed.
    pub status: String,
    /// Label selector in serialised form, if any.
    pub selector: Option<String>,
}

/// One version of a custom kind.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Whether requests may use it.
    pub served: bool,
    /// Its schema.
    pub schema: Arc<Schema>,
    /// The same with what all objects have.
    pub typed: Arc<Schema>,
    /// `additionalPrinterColumns`.
    pub columns: Vec<Value>,
    /// Whether it has the status subresource.
    pub status: bool,
    /// Its scale subresource.
    pub scale: Option<ScalePaths>,
    /// Field selectors that it offers, as `spec.x`.
    pub selectable: Vec<String>,
    /// Said in a warning header on every use.
    pub deprecation: Option<String>,
}

/// A custom kind, ready to be served.
#[derive(Clone, Debug)]
pub struct Custom {
    /// Name of the CRD.
    pub crd: String,
    /// Group.
    pub group: String,
    /// Accepted names.
    pub names: Names,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// All versions.
    pub versions: Vec<Version>,
    /// The stored one.
    pub storage: String,
    /// What held for stored objects before, oldest first: stored text does not say its version.
    pub earlier: Vec<Era>,
    /// The `clientConfig` of the conversion webhook, if versions are converted by one.
    pub conversion_webhook: Option<Value>,
    /// Keeps unknown fields everywhere (a CRD from before structural schemas).
    pub preserve_unknown: bool,
}

/// Revisions whose objects were written under another version or another schema than those of now. They are put right when they are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Era {
    /// The first revision after it.
    pub until: Revision,
    /// The version of its objects.
    pub version: String,
}

/// The names of a custom kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the CRD's own")]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

fn text(v: &Value, path: &str) -> String {
    crate::meta::text_at(v, path).to_string()
}

/// Fills in what a CRD's author may leave out.
pub fn default(crd: &mut Value) {
    let kind = text(crd, "spec.names.kind");
    if text(crd, "spec.names.singular").is_empty() && !kind.is_empty() {
        crate::meta::set_at(crd, "spec.names.singular", kind.to_lowercase().into());
    }
    if text(crd, "spec.names.listKind").is_empty() && !kind.is_empty() {
        crate::meta::set_at(crd, "spec.names.listKind", format!("{kind}List").into());
    }
    if crate::meta::at(crd, "spec.conversion").is_none() {
        crate::meta::set_at(crd, "spec.conversion", json!({"strategy": "None"}));
    }
}

/// Reads a CRD; every refusal names its field.
pub fn read(crd: &Value) -> Result<Custom, Vec<FieldError>> {
    let mut errors = Vec::new();
    let group = text(crd, "spec.group");
    let plural = text(crd, "spec.names.plural");
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            group.as_str(),
            "should be a domain with at least one dot",
        ));
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(crd, &format!("spec.names.{field}")).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    let name = crate::meta::name(crd);
    let wanted = format!("{plural}.{group}");
    if !plural.is_empty() && !group.is_empty() && name != wanted {
        errors.push(FieldError::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    let scope = text(crd, "spec.scope");
    match scope.as_str() {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => errors.push(FieldError::not_supported("spec.scope", other, ["Cluster", "Namespaced"])),
    }
    let listed = crate::meta::at(crd, "spec.versions").and_then(Value::as_array).cloned().unwrap_or_default();
    if listed.is_empty() {
        errors.push(FieldError::invalid(
            "spec.versions",
            json!([]),
            "must have exactly one version marked as storage version",
        ));
    }
    let storages: Vec<String> =
        listed.iter().filter(|v| v["storage"] == true).map(|v| text(v, "name")).collect();
    if !listed.is_empty() && storages.len() != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            Value::Array(
                listed.iter().map(|v| json!({"name": v["name"], "storage": v["storage"]})).collect(),
            ),
            "must have exactly one version marked as storage version",
        ));
    }
    let preserve_unknown = crate::meta::at(crd, "spec.preserveUnknownFields") == Some(&Value::Bool(true));
    if preserve_unknown {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            true,
            "must be false in order to use defaults in the schema",
        ));
    }
    let mut versions = Vec::new();
    for (i, v) in listed.iter().enumerate() {
        let at = format!("spec.versions[{i}]");
        let schema = match crate::meta::at(v, "schema.openAPIV3Schema") {
            None => {
                errors.push(FieldError::required(format!("{at}.schema.openAPIV3Schema"), ""));
                Schema::default()
            }
            Some(raw) => {
                Schema::from_crd_at(&format!("{at}.schema.openAPIV3Schema"), raw).unwrap_or_else(|found| {
                    errors.extend(found);
                    Schema::default()
                })
            }
        };
        let path = |p: &str| p.trim_start_matches('.').to_string();
        let scale = crate::meta::at(v, "subresources.scale").map(|s| ScalePaths {
            spec: path(&text(s, "specReplicasPath")),
            status: path(&text(s, "statusReplicasPath")),
            selector: s.get("labelSelectorPath").and_then(Value::as_str).map(path),
        });
        let deprecated = v["deprecated"] == true;
        let said = v["deprecationWarning"].as_str().map(str::to_string);
        versions.push(Version {
            name: text(v, "name"),
            served: v["served"] == true,
            typed: Arc::new(typed(&schema)),
            schema: Arc::new(schema),
            columns: v["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
            status: crate::meta::at(v, "subresources.status").is_some(),
            scale,
            selectable: v["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|f| f["jsonPath"].as_str().map(path))
                .collect(),
            deprecation: deprecated.then(|| {
                said.unwrap_or_else(|| {
                    let kind = text(crd, "spec.names.kind");
                    let newer = listed.iter().find(|v| v["served"] == true && v["deprecated"] != true);
                    let instead =
                        newer.map_or(String::new(), |v| format!("; use {group}/{} {kind}", text(v, "name")));
                    format!("{group}/{} {kind} is deprecated{instead}", text(v, "name"))
                })
            }),
        });
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let strategy = text(crd, "spec.conversion.strategy");
    Ok(Custom {
        crd: name.to_string(),
        names: Names {
            plural,
            singular: text(crd, "spec.names.singular"),
            kind: text(crd, "spec.names.kind"),
            list_kind: text(crd, "spec.names.listKind"),
            short_names: crate::meta::strings(crate::meta::at(crd, "spec.names.shortNames")),
            categories: crate::meta::strings(crate::meta::at(crd, "spec.names.categories")),
        },
        namespaced: scope == "Namespaced",
        storage: storages.into_iter().next().unwrap_or_default(),
        earlier: Vec::new(),
        conversion_webhook: (strategy == "Webhook")
            .then(|| crate::meta::at(crd, "spec.conversion.webhook.clientConfig").cloned())
            .flatten(),
        group,
        versions,
        preserve_unknown,
    })
}

impl Custom {
    /// The version of that name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|v| v.name == name)
    }

    /// The version in which the object of this revision is stored.
    pub fn stored_as(&self, revision: Revision) -> &str {
        let era = self.earlier.get(self.earlier.partition_point(|era| era.until <= revision));
        era.map_or(&self.storage, |era| &era.version)
    }

    /// Whether the object of this revision was written under the version and the schema of now.
    pub fn is_of_today(&self, revision: Revision) -> bool {
        self.earlier.last().is_none_or(|era| era.until <= revision)
    }

    /// Whether what `old` stored is to be put right when it is read.
    pub fn changes_storage_of(&self, old: &Custom) -> bool {
        let stored = |custom: &Custom| custom.version(&custom.storage).map(|version| version.schema.clone());
        old.storage != self.storage
            || old.preserve_unknown != self.preserve_unknown
            || stored(old) != stored(self)
    }

    /// Puts right an object as it was stored: what its schema does not know goes, and defaults come.
    pub fn bring_up_to_date(&self, object: &mut Value, revision: Revision) {
        let Some(version) = self.version(self.stored_as(revision)).filter(|_| !self.is_of_today(revision))
        else {
            return;
        };
        if !self.preserve_unknown {
            k8s_schema::prune(object, &version.schema);
        }
        k8s_schema::default(object, &version.schema);
    }

    /// Notes that whatever was written before this revision is in that version, and is not of today.
    pub fn end_era(&mut self, until: Revision, version: &str) {
        match self.earlier.last_mut().filter(|era| era.version == version) {
            Some(era) => era.until = until,
            None => self.earlier.push(Era { until, version: version.to_string() }),
        }
    }

    /// Notes that the object of this revision is stored in a version of its own.
    pub fn note(&mut self, revision: Revision, version: &str) {
        if self.stored_as(revision) == version {
            return;
        }
        let place = self.earlier.partition_point(|era| era.until <= revision);
        let before = Era { until: revision, version: self.stored_as(revision).to_string() };
        let own = Era { until: revision + 1, version: version.to_string() };
        self.earlier.splice(place..place, [before, own]);
    }

    /// One served kind per served version.
    pub fn served(self: &Arc<Custom>) -> Vec<Served> {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_string()).collect::<Vec<_>>();
        self.versions
            .iter()
            .filter(|v| v.served)
            .map(|v| {
                let mut subresources = Vec::new();
                if v.status {
                    subresources.push(Subresource {
                        name: "status".into(),
                        group: self.group.clone(),
                        version: v.name.clone(),
                        kind: self.names.kind.clone(),
                        verbs: owned(&["get", "patch", "update"]),
                    });
                }
                if v.scale.is_some() {
                    subresources.push(Subresource {
                        name: "scale".into(),
                        group: "autoscaling".into(),
                        version: "v1".into(),
                        kind: "Scale".into(),
                        verbs: owned(&["get", "patch", "update"]),
                    });
                }
                Served {
                    group: self.group.clone(),
                    version: v.name.clone(),
                    kind: self.names.kind.clone(),
                    list_kind: self.names.list_kind.clone(),
                    plural: self.names.plural.clone(),
                    singular: self.names.singular.clone(),
                    short_names: self.names.short_names.clone(),
                    categories: self.names.categories.clone(),
                    namespaced: self.namespaced,
                    table: table_name(&self.group, &self.names.plural),
                    storage_api_version: api_version(&self.group, &self.storage),
                    verbs: owned(&[
                        "delete",
                        "deletecollection",
                        "get",
                        "list",
                        "patch",
                        "create",
                        "update",
                        "watch",
                    ]),
                    subresources,
                    schema: v.schema.clone(),
                    typed: v.typed.clone(),
                    source: Source::Custom(self.clone()),
                }
            })
            .collect()
    }
}

/// A schema with what all objects have.
fn typed(schema: &Schema) -> Schema {
    let mut typed = schema.clone();
    if typed.properties.is_empty() {
        return typed;
    }
    let text = || Arc::new(Schema::of(k8s_schema::Type::String));
    let metadata = k8s_builtin::schema_of(k8s_builtin::KubeVersion::V1_36, "meta.v1.ObjectMeta");
    for (name, of) in [("apiVersion", Some(text())), ("kind", Some(text())), ("metadata", metadata)] {
        if let Some(of) = of {
            typed.properties.insert(name.into(), of);
        }
    }
    typed
}

/// Which of a CRD's names are taken by others of its group: the reason of the last taken one, and a text about all.
pub fn name_clash(custom: &Custom, others: &[Arc<Custom>]) -> Option<(&'static str, String)> {
    let others: Vec<&Names> =
        others.iter().filter(|o| o.group == custom.group && o.crd != custom.crd).map(|o| &o.names).collect();
    let resource_taken = |name: &str| {
        others
            .iter()
            .any(|o| o.plural == name || o.singular == name || o.short_names.iter().any(|s| s == name))
    };
    let kind_taken = |name: &str| others.iter().any(|o| o.kind == name || o.list_kind == name);
    let names = &custom.names;
    let mut taken: Vec<(&'static str, &str)> = Vec::new();
    let resources = [("PluralConflict", &names.plural), ("SingularConflict", &names.singular)];
    let short = names.short_names.iter().map(|s| ("ShortNamesConflict", s));
    taken.extend(
        resources.into_iter().chain(short).filter(|(_, n)| resource_taken(n)).map(|(r, n)| (r, n.as_str())),
    );
    let kinds = [("KindConflict", &names.kind), ("ListKindConflict", &names.list_kind)];
    taken.extend(kinds.into_iter().filter(|(_, n)| kind_taken(n)).map(|(r, n)| (r, n.as_str())));
    let texts: Vec<String> = taken.iter().map(|(_, n)| format!("\"{n}\" is already in use")).collect();
    let message = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
    taken.last().map(|(reason, _)| (*reason, message))
}

/// The status of a CRD that nobody has judged yet.
pub fn initial_status(crd: &Value) -> Value {
    let versions = crate::meta::at(crd, "spec.versions").and_then(Value::as_array);
    let stored: Vec<&Value> =
        versions.into_iter().flatten().filter(|v| v["storage"] == true).map(|v| &v["name"]).collect();
    json!({"acceptedNames": {"plural": "", "kind": ""}, "conditions": null, "storedVersions": stored})
}

/// The condition of a CRD whose objects are being deleted.
pub fn terminating_condition(now: &str) -> Value {
    json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        "lastTransitionTime": now,
    })
}

/// The status that a CRD has once its names are judged.
pub fn status(crd: &Value, custom: &Custom, clash: Option<(&str, String)>, now: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let old =
        crate::meta::at(crd, "status.conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let keep_time = |mut new: Value| {
        if let Some(same) = old.iter().find(|c| c["type"] == new["type"] && c["status"] == new["status"]) {
            new["lastTransitionTime"] = same["lastTransitionTime"].clone();
        }
        new
    };
    let conditions = match &clash {
        None => vec![
            condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
            condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        Some((reason, message)) => vec![
            condition("NamesAccepted", "False", reason, message),
            condition("Established", "False", "NotAccepted", "not all names are accepted"),
        ],
    };
    let mut stored = crate::meta::strings(crate::meta::at(crd, "status.storedVersions"));
    if !stored.contains(&custom.storage) {
        stored.push(custom.storage.clone());
    }
    let accepted = if clash.is_none() {
        crate::meta::at(crd, "spec.names").cloned().unwrap_or_default()
    } else {
        json!({"plural": "", "kind": ""})
    };
    json!({
        "conditions": conditions.into_iter().map(keep_time).collect::<Vec<_>>(),
        "acceptedNames": accepted,
        "storedVersions": stored,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(storage: &str, earlier: &[(Revision, &str)]) -> Custom {
        let crd = json!({
            "metadata": {"name": "as.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster",
                "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
                "versions": [{"name": storage, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        let mut custom = read(&crd).unwrap();
        let era =
            |(until, version): &(Revision, &str)| Era { until: *until, version: (*version).to_string() };
        custom.earlier = earlier.iter().map(era).collect();
        custom
    }

    #[track_caller]
    fn check(custom: &Custom, expected: &[(Revision, &str)]) {
        for (revision, version) in expected {
            assert_eq!(custom.stored_as(*revision), *version, "at {revision}");
        }
    }

    #[test]
    fn an_object_is_of_the_version_of_its_time() {
        check(&custom("v3", &[]), &[(1, "v3"), (100, "v3")]);
        let mut custom = custom("v3", &[(10, "v1"), (20, "v2")]);
        check(&custom, &[(1, "v1"), (9, "v1"), (10, "v2"), (19, "v2"), (20, "v3"), (100, "v3")]);
        // Somebody wrote what they had read before the change.
        custom.note(30, "v2");
        custom.note(31, "v2");
        custom.note(15, "v1");
        custom.note(40, "v3");
        check(&custom, &[(9, "v1"), (14, "v2"), (15, "v1"), (16, "v2"), (19, "v2"), (20, "v3"), (29, "v3")]);
        check(&custom, &[(30, "v2"), (31, "v2"), (32, "v3"), (40, "v3")]);
    }
}
