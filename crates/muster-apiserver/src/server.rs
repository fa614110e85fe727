//! The server's state and the steps that every request shares: finding kinds, reading stored objects in a version,
//! committing writes.
//!
//! In: options. Out: an [`ApiServer`], cheap to clone, on which requests are answered (`service`) and background work
//! runs (`gc`, `namespaces`). Invariant: every write goes through [`ApiServer::commit`] or [`ApiServer::erase`], which
//! stamp the resourceVersion and the facts that selectors and garbage collection use.

use crate::admission::Hook;
use crate::apart::{Apart, Reach, add_record, from_the_end};
use crate::clock::Clock;
use crate::crd::{self, Custom, Era};
use crate::derived::Derived;
use crate::meta;
use crate::registry::{Registry, Served, Source};
use crate::status::ApiError;
use crate::store::{Clash, Draft, Expect, Facts, Key, Memory, Pairs, Range, Revision, Store, Stored};
use crate::strategy::{self, Part};
use k8s_builtin::KubeVersion;
use k8s_merge::apply::Record;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// The table in which it is kept in which versions objects of CRDs were stored; no kind has this name.
const ERAS: &str = "muster storage eras";

/// Converts an object of a group, in place, to the version of an `apiVersion`.
pub type Converter = fn(&mut Value, &str) -> Result<(), String>;

/// How a server behaves.
#[derive(Clone)]
pub struct Options {
    /// The clock behind every timestamp.
    pub clock: Clock,
    /// Which Kubernetes it resembles.
    pub kube_version: KubeVersion,
    /// In-process converters by API group, used instead of conversion webhooks.
    pub converters: BTreeMap<String, Converter>,
    /// In-process admission, called after the built-in mutating steps.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// The user that requests are attributed to.
    pub user: String,
    /// Enforces RBAC on requests from outside this process.
    pub access: Option<crate::access::Config>,
    /// Makes users take turns, where access is enforced.
    pub fair: crate::fair::Limits,
    /// Writes down requests from outside this process.
    pub audit: Option<Arc<crate::audit::Log>>,
    /// Uids and generated names follow from this seed, so that a run can be repeated; without it they are random.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Clock::wall(),
            kube_version: KubeVersion::V1_36,
            converters: BTreeMap::new(),
            hooks: Vec::new(),
            user: "muster-admin".into(),
            access: None,
            fair: crate::fair::Limits::default(),
            audit: None,
            seed: None,
        }
    }
}

/// The embedded API server.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub options: Options,
    pub registry: RwLock<Arc<Registry>>,
    /// Quota checks read usage and then create; one at a time, so that two creations never share the last unit.
    pub quota: tokio::sync::Mutex<()>,
    /// Evictions read a budget and then delete; one at a time for the same reason.
    pub evictions: tokio::sync::Mutex<()>,
    pub webhooks: crate::webhook::Caller,
    /// Rendered OpenAPI documents of the current registry, by group and version.
    pub openapi: RwLock<crate::openapi::Cache>,
    /// How many uids were made from the seed.
    pub n_uids: AtomicU64,
    /// What was written last, parsed: objects are mostly written again soon after.
    pub recent: crate::recent::Recent,
    /// Policies in CEL, as they are stored.
    pub policies: Derived<Vec<crate::admission::Bound>>,
    /// Priority classes, parsed.
    pub priority_classes: Derived<Vec<Value>>,
    /// Who may do what, where that is enforced.
    pub access: Option<crate::access::Access>,
    /// Whose turn it is, where access is enforced.
    pub fair: Option<Arc<crate::fair::Fair>>,
}

impl ApiServer {
    /// A server over an empty in-memory store, with the objects every cluster starts with.
    pub fn new(options: Options) -> ApiServer {
        ApiServer::with_store(options, Arc::new(Memory::new()))
    }

    /// A server over a store, which may already hold objects.
    pub fn with_store(options: Options, store: Arc<dyn Store>) -> ApiServer {
        let registry = Registry::new(options.kube_version, &[]);
        let access = options.access.clone().map(|config| crate::access::Access::new(config, &options.user));
        let fair = access.as_ref().map(|_| crate::fair::Fair::new(options.fair));
        // Uids that follow from a seed go on after those that a store already holds; each write takes one or a few.
        let n_uids = if store.revision() > 1 { store.revision() << 16 } else { 0 };
        let inner = Inner {
            access,
            fair,
            policies: Derived::default(),
            priority_classes: Derived::default(),
            store,
            options,
            registry: RwLock::new(Arc::new(registry)),
            quota: tokio::sync::Mutex::new(()),
            evictions: tokio::sync::Mutex::new(()),
            webhooks: crate::webhook::Caller::new(),
            openapi: RwLock::default(),
            n_uids: AtomicU64::new(n_uids),
            recent: crate::recent::Recent::default(),
        };
        let server = ApiServer { inner: Arc::new(inner) };
        server.reload_crds();
        crate::bootstrap::seed(&server);
        if server.inner.access.is_some() {
            server.seed_roles();
        }
        server
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.inner.options.clock
    }

    /// What is served now.
    pub fn registry(&self) -> Arc<Registry> {
        self.inner.registry.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    /// The kind stored in a table.
    pub(crate) fn kind_of_table(&self, table: &str) -> Option<Arc<Served>> {
        self.registry().find_table(table).cloned()
    }

    /// Reads all stored CRDs again and serves what they define.
    pub(crate) fn reload_crds(&self) {
        let customs: Vec<Arc<Custom>> = self
            .all("customresourcedefinitions.apiextensions.k8s.io")
            .iter()
            .filter(|crd| established(crd))
            .filter_map(|crd| crd::read(crd).ok())
            .map(|mut custom| {
                custom.earlier = self.eras(&custom.crd);
                Arc::new(custom)
            })
            .collect();
        self.install(&customs);
    }

    /// In which versions the objects of a CRD were stored before. Kept beside the objects, where no request comes.
    fn eras(&self, crd: &str) -> Vec<Era> {
        if self.store().len(crd) == 0 {
            return Vec::new();
        }
        let kept = self.store().get(ERAS, &Key::new("", crd));
        let kept = kept.and_then(|kept| serde_json::from_str::<Value>(&kept.text).ok());
        kept.and_then(|mut kept| serde_json::from_value(kept["eras"].take()).ok()).unwrap_or_default()
    }

    fn keep_eras(&self, crd: &str, eras: &[Era]) {
        let key = Key::new("", crd);
        let draft = Draft::new("{\"revision\":", format!(",\"eras\":{}}}", json!(eras)), Facts::default());
        loop {
            let expect = match self.store().get(ERAS, &key) {
                Some(kept) => Expect::At(kept.revision),
                None => Expect::Absent,
            };
            if self.store().put(&ERAS.into(), &key, expect, draft.clone()).is_ok() {
                return;
            }
        }
    }

    /// An object was written in another version than the one that is stored now: whoever wrote it had read it before that changed, or could
    /// not convert it.
    fn note_stray(&self, home: &Served, object: &Value, revision: Revision) {
        let Source::Custom(custom) = &home.source else { return };
        let Some(version) = object["apiVersion"].as_str().filter(|v| *v != home.storage_api_version) else {
            return;
        };
        let mut customs = self.customs();
        if let Some(place) = customs.iter_mut().find(|c| c.crd == custom.crd) {
            let mut noted = (**place).clone();
            noted.note(revision, crate::registry::split_api_version(version).1);
            self.keep_eras(&noted.crd, &noted.earlier);
            *place = Arc::new(noted);
            self.install(&customs);
        }
    }

    fn install(&self, customs: &[Arc<Custom>]) {
        let registry = Arc::new(Registry::new(self.inner.options.kube_version, customs));
        *self.inner.registry.write().unwrap_or_else(std::sync::PoisonError::into_inner) = registry;
        self.inner.openapi.write().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
        crate::bootstrap::list_api_services(self);
    }

    /// The custom kinds served now.
    pub(crate) fn customs(&self) -> Vec<Arc<Custom>> {
        let mut found: Vec<Arc<Custom>> = Vec::new();
        for served in &self.registry().kinds {
            if let Source::Custom(c) = &served.source
                && !found.iter().any(|f| f.crd == c.crd)
            {
                found.push(c.clone());
            }
        }
        found
    }

    /// Judges a CRD's names, writes its status and serves it from now on.
    pub(crate) fn establish(&self, crd_name: &str) {
        let table = "customresourcedefinitions.apiextensions.k8s.io";
        let Some(served) = self.kind_of_table(table) else { return };
        let key = Key::new("", crd_name);
        for _ in 0..8 {
            let Some(stored) = self.store().get(table, &key) else { return };
            let Ok(mut object) = self.parse(&stored, &served) else { return };
            let Ok(mut custom) = crd::read(&object) else { return };
            let mut others = self.customs();
            let before = others.iter().position(|o| o.crd == custom.crd).map(|place| others.remove(place));
            custom.earlier = before.as_ref().map_or_else(|| self.eras(crd_name), |old| old.earlier.clone());
            let clash = crd::name_clash(&custom, &others);
            let status = crd::status(&object, &custom, clash.clone(), &self.clock().rfc3339());
            let accepted = clash.is_none();
            if object.get("status") != Some(&status) {
                let before = object.clone();
                object["status"] = status;
                object = self.manage_as("kube-apiserver", &served, Some(&before), object, Part::Status);
                if matches!(
                    self.commit(&served, &key, Expect::At(stored.revision), &object),
                    Err(Clash::Moved)
                ) {
                    continue;
                }
            }
            if let Some(old) = before.filter(|old| custom.changes_storage_of(old))
                && self.store().len(crd_name) > 0
            {
                // What is there stays as it is, and is put right when it is read.
                custom.end_era(self.store().revision() + 1, &old.storage);
                self.keep_eras(crd_name, &custom.earlier);
                self.inner.recent.clear();
            }
            if accepted {
                others.push(Arc::new(custom));
            }
            self.install(&others);
            return;
        }
    }

    /// Installs CRDs as if a client had created them, all at once: one pass over the kinds however many there are.
    /// Those that are there already are left alone.
    pub fn install_crds(&self, crds: Vec<Value>) -> Result<(), ApiError> {
        let table = "customresourcedefinitions.apiextensions.k8s.io";
        let served = self.kind_of_table(table).ok_or_else(ApiError::no_such_path)?;
        let mut customs = self.customs();
        for mut crd in crds {
            strategy::default(&served, &mut crd);
            let name = meta::name(&crd).to_string();
            let custom = crd::read(&crd)
                .map_err(|errors| ApiError::invalid(&served.group, &served.kind, &name, &errors))?;
            let clash = crd::name_clash(&custom, &customs);
            let accepted = clash.is_none();
            crd["status"] = crd::status(&crd, &custom, clash, &self.clock().rfc3339());
            self.stamp_new(&mut crd);
            meta::edit(&mut crd).insert("generation".into(), 1.into());
            if self.commit(&served, &Key::new("", &name), Expect::Absent, &crd).is_ok() && accepted {
                customs.push(Arc::new(custom));
            }
        }
        self.install(&customs);
        Ok(())
    }

    /// A uid that no object has had.
    pub(crate) fn new_uid(&self) -> uuid::Uuid {
        let Some(seed) = self.inner.options.seed else { return uuid::Uuid::new_v4() };
        let n = self.inner.n_uids.fetch_add(1, Ordering::Relaxed);
        let bits = [mix(seed ^ mix(2 * n)), mix(seed ^ mix(2 * n + 1))];
        uuid::Builder::from_random_bytes((u128::from(bits[0]) << 64 | u128::from(bits[1])).to_be_bytes())
            .into_uuid()
    }

    /// Gives a new object its uid and time of creation.
    pub(crate) fn stamp_new(&self, object: &mut Value) {
        let metadata = meta::edit(object);
        metadata.insert("uid".into(), self.new_uid().to_string().into());
        metadata.insert("creationTimestamp".into(), self.clock().rfc3339().into());
        for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
    }

    /// A stored object in the version in which it was stored, with `apiVersion` and `kind`.
    pub(crate) fn parse_stored(&self, stored: &Stored, served: &Served) -> Result<Value, ApiError> {
        let mut object: Value = serde_json::from_str(&stored.text).map_err(ApiError::internal)?;
        object["apiVersion"] = served.stored_api_version(stored.revision).into();
        object["kind"] = served.kind.as_str().into();
        if let Source::Custom(custom) = &served.source {
            custom.bring_up_to_date(&mut object, stored.revision);
        }
        Ok(object)
    }

    /// Whether a stored object is read otherwise than it is stored, for it is from before a change of its schema. Then a write that changes
    /// nothing changes what is stored.
    pub(crate) fn is_read_otherwise(&self, stored: &Stored, served: &Served) -> bool {
        let Source::Custom(custom) = &served.source else { return false };
        if custom.is_of_today(stored.revision) {
            return false;
        }
        serde_json::from_str::<Value>(&stored.text).is_ok_and(|as_stored| {
            let mut as_read = as_stored.clone();
            custom.bring_up_to_date(&mut as_read, stored.revision);
            as_read != as_stored
        })
    }

    /// A stored object in the version in which it was stored, to look at. Parsed only if it was not written a moment ago.
    pub(crate) fn look_at(&self, stored: &Stored, served: &Served) -> Result<Arc<Value>, ApiError> {
        match self.inner.recent.get(stored.revision) {
            Some(object) => Ok(object),
            None => self.parse_stored(stored, served).map(Arc::new),
        }
    }

    /// A stored object taken apart for a write that reaches so far; `None` if its kind is not one whose parts can be judged one by one.
    pub(crate) fn take_apart(&self, stored: &Stored, served: &Served, reach: Reach) -> Option<Apart> {
        if strategy::is_kept_apart(served) { Apart::of(stored, served, reach) } else { None }
    }

    /// A stored object in the version of `served`. Versions that need a webhook are converted by [`ApiServer::read`].
    pub(crate) fn parse(&self, stored: &Stored, served: &Served) -> Result<Value, ApiError> {
        let object = self.parse_stored(stored, served)?;
        self.convert_local(object, served, &served.api_version())
    }

    /// A stored object in the version of `served`, by whatever conversion its kind has.
    pub(crate) async fn read(&self, stored: &Stored, served: &Served) -> Result<Value, ApiError> {
        let object = self.parse_stored(stored, served)?;
        self.convert(object, served, &served.api_version()).await
    }

    /// Converts an object between versions of its kind.
    pub(crate) async fn convert(&self, object: Value, served: &Served, to: &str) -> Result<Value, ApiError> {
        if object["apiVersion"] != to
            && let Source::Custom(custom) = &served.source
            && let Some(config) = &custom.conversion_webhook
            && !self.inner.options.converters.contains_key(&custom.group)
        {
            return self.inner.webhooks.convert(config, object, to).await;
        }
        self.convert_local(object, served, to)
    }

    /// An object in the storage version of its kind, if it can be had without asking a webhook.
    pub(crate) fn in_storage_version(&self, object: Value, home: &Served) -> Value {
        match &home.source {
            Source::Custom(custom)
                if object["apiVersion"] != home.storage_api_version
                    && (custom.conversion_webhook.is_none()
                        || self.inner.options.converters.contains_key(&custom.group)) =>
            {
                self.convert_local(object.clone(), home, &home.storage_api_version).unwrap_or(object)
            }
            Source::Custom(_) | Source::Builtin(_) => object,
        }
    }

    fn convert_local(&self, mut object: Value, served: &Served, to: &str) -> Result<Value, ApiError> {
        let from = object["apiVersion"].as_str().unwrap_or_default().to_string();
        if from == to {
            return Ok(object);
        }
        match &served.source {
            Source::Builtin(kind) => Ok(if to == served.storage_api_version {
                k8s_builtin::to_storage(kind, object)
            } else {
                k8s_builtin::from_storage(kind, object)
            }),
            Source::Custom(custom) => {
                if let Some(converter) = self.inner.options.converters.get(&custom.group) {
                    converter(&mut object, to).map_err(|why| {
                        ApiError::internal(format!("conversion of {} to {to}: {why}", served.kind))
                    })?;
                }
                object["apiVersion"] = to.into();
                Ok(object)
            }
        }
    }

    /// Writes an object that is already in its storage version.
    pub(crate) fn commit(
        &self,
        served: &Served,
        key: &Key,
        expect: Expect,
        object: &Value,
    ) -> Result<Stored, Clash> {
        self.commit_recorded(served, key, expect, object, &Record::default())
    }

    /// The same for an object whose record of field managers is apart from it.
    pub(crate) fn commit_recorded(
        &self,
        served: &Served,
        key: &Key,
        expect: Expect,
        object: &Value,
        record: &Record,
    ) -> Result<Stored, Clash> {
        let home = self.kind_of_table(&served.table);
        let home = home.as_deref().unwrap_or(served);
        let draft = draft(home, object, record);
        let stored = self.store().put(&served.table, key, expect, draft)?;
        self.note_stray(home, object, stored.revision);
        Ok(stored)
    }

    /// Removes an object; `object` is its last state.
    pub(crate) fn erase(
        &self,
        served: &Served,
        key: &Key,
        expect: Revision,
        object: &Value,
    ) -> Result<Stored, Clash> {
        let home = self.kind_of_table(&served.table);
        let home = home.as_deref().unwrap_or(served);
        let draft = draft(home, object, &Record::default());
        let stored = self.store().delete(&served.table, key, expect, draft)?;
        self.note_stray(home, object, stored.revision);
        Ok(stored)
    }

    /// Every object of a table, parsed, in its storage version.
    pub(crate) fn all(&self, table: &str) -> Vec<Value> {
        self.all_in(table, None)
    }

    /// Every object of a table in a namespace, parsed, in its storage version.
    pub(crate) fn all_in(&self, table: &str, namespace: Option<&str>) -> Vec<Value> {
        let Some(served) = self.kind_of_table(table) else { return Vec::new() };
        let range = Range { namespace, ..Range::default() };
        match self.store().list(table, &range, &mut |_| true) {
            Ok(page) => page.items.iter().filter_map(|s| self.parse_stored(s, &served).ok()).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// One object of a table, parsed, in its storage version.
    pub(crate) fn one(&self, table: &str, namespace: &str, name: &str) -> Option<Value> {
        let served = self.kind_of_table(table)?;
        let stored = self.store().get(table, &Key::new(namespace, name))?;
        self.parse_stored(&stored, &served).ok()
    }

    /// `gitVersion` of the Kubernetes that it resembles.
    pub fn version(&self) -> Value {
        let (minor, git) = match self.inner.options.kube_version {
            KubeVersion::V1_35 => ("35", "v1.35.0"),
            KubeVersion::V1_36 => ("36", "v1.36.3"),
        };
        json!({
            "major": "1", "minor": minor, "gitVersion": format!("{git}+muster"),
            "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, arch()),
            "emulationMajor": "1", "emulationMinor": minor,
            "minCompatibilityMajor": "1", "minCompatibilityMinor": (minor.parse::<u32>().unwrap_or(36) - 1).to_string(),
        })
    }
}

/// Spreads the bits of a number evenly (the finisher of splitmix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn established(crd: &Value) -> bool {
    meta::at(crd, "status.conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// The stored form of an object but for its revision: without `apiVersion` and `kind`.
fn draft(served: &Served, object: &Value, record: &Record) -> Draft {
    // Written member by member: on the hot path of every write, a copy of the object would cost more than its text.
    let metadata = object.get("metadata").and_then(Value::as_object);
    let (mut text, record) = open_text(|text| add_metadata(text, metadata), record);
    let members = object.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(k, _)| !matches!(k.as_str(), "apiVersion" | "kind" | "metadata")) {
        add_member(&mut text, name, value);
    }
    text.push(b'}');
    let text = String::from_utf8(text).expect("serde_json writes UTF-8");
    let mut facts = facts_of_metadata(object);
    facts.fields = strategy::selectable(served, |label| strategy::field(served, object, label));
    facts.record = from_the_end(&text, record);
    Draft::new(BEFORE_REVISION, text, facts)
}

/// The text of an object up to its revision.
pub(crate) const BEFORE_REVISION: &str = "{\"metadata\":{\"resourceVersion\":\"";

/// The text of an object from after its revision up to the end of its metadata, whose members `add` brings, and where in it the record of field managers
/// is: it comes by itself, or is one of the members, of which `add` says the place.
pub(crate) fn open_text(
    add: impl FnOnce(&mut Vec<u8>) -> std::ops::Range<usize>,
    record: &Record,
) -> (Vec<u8>, std::ops::Range<usize>) {
    let mut text = Vec::with_capacity(6 << 10);
    text.push(b'"');
    let member = add(&mut text);
    let begin = text.len();
    add_record(&mut text, record);
    let place = begin..text.len();
    text.push(b'}');
    (text, if place.is_empty() { member } else { place })
}

/// Adds the members of metadata but for the revision. Out: where among them the record of field managers is.
pub(crate) fn add_metadata(
    text: &mut Vec<u8>,
    metadata: Option<&Map<String, Value>>,
) -> std::ops::Range<usize> {
    let mut place = 0..0;
    for (name, value) in metadata.into_iter().flatten().filter(|(k, _)| *k != "resourceVersion") {
        let begin = text.len();
        add_member(text, name, value);
        if name == "managedFields" {
            place = begin..text.len();
        }
    }
    place
}

/// Adds `,"name":value`.
pub(crate) fn add_member(text: &mut Vec<u8>, name: &str, value: &(impl serde::Serialize + ?Sized)) {
    text.push(b',');
    serde_json::to_writer(&mut *text, name).expect("a string can be written to memory");
    text.push(b':');
    serde_json::to_writer(&mut *text, value).expect("a JSON value can be written to memory");
}

/// What selectors and garbage collection need of the metadata.
pub(crate) fn facts_of_metadata(object: &Value) -> Facts {
    let metadata = object.get("metadata");
    Facts {
        uid: meta::uid(object).into(),
        labels: metadata
            .and_then(|m| m.get("labels"))
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(k, v)| (k.clone().into(), v.as_str().unwrap_or_default().into()))
            .collect(),
        fields: Pairs::default(),
        owners: metadata
            .and_then(|m| m.get("ownerReferences"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|o| o["uid"].as_str().map(Arc::from))
            .collect(),
        terminating: meta::terminating(object),
        record: None,
    }
}
