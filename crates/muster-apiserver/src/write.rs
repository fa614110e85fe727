//! Create, update and patch. In: a request context and a body. Out: the object as it now is.
//!
//! All three end in the same two paths, [`ApiServer::create_object`] and [`ApiServer::update_object`]; a patch is an update
//! whose new state is computed from the live one, and is tried again when the live one moved meanwhile.

use crate::access::User;
use crate::admission::{Operation, Review};
use crate::apart::Apart;
use crate::audit::Notes;
use crate::meta;
use crate::negotiate::Form;
use crate::query::{FieldValidation, Query};
use crate::read::{is_plain, splice};
use crate::registry::{Served, Source};
use crate::reply::Reply;
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::store::{Clash, Expect, Key, Revision, Stored};
use crate::strategy::{self, Part};
use k8s_merge::apply::{self, ApplyError, FieldSet};
use k8s_schema::FieldError;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How often a write is tried again when another one came between.
const TRIES: usize = 32;

/// What a write request is about.
#[derive(Clone)]
pub struct Context {
    /// The kind in the request's version.
    pub served: Arc<Served>,
    /// The namespace of the path.
    pub namespace: Option<String>,
    /// Query parameters.
    pub query: Query,
    /// The form of the answer.
    pub form: Form,
    /// `Content-Type` of the body.
    pub content_type: String,
    /// For the field manager when none is named.
    pub user_agent: String,
    /// Who asks, where that matters; this process itself otherwise.
    pub user: Option<Arc<User>>,
    /// Where remarks for the audit log go, if there is one.
    pub(crate) notes: Option<Notes>,
}

impl Context {
    /// Name of the field manager: as given, else the program's name from the user agent.
    pub fn manager(&self) -> String {
        if !self.query.field_manager.is_empty() {
            return self.query.field_manager.clone();
        }
        let program = self.user_agent.split('/').next().unwrap_or_default();
        let printable: String = program.chars().filter(|c| !c.is_control()).take(128).collect();
        if printable.is_empty() { "unknown".into() } else { printable }
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or_default(), name)
    }
}

/// What a write did.
pub struct Written {
    /// The object in the request's version; where there is none, it is as stored.
    pub object: Option<Arc<Value>>,
    /// The same as it is stored; nothing is stored when the request is a dry run.
    pub stored: Option<Stored>,
    /// Whether it was made.
    pub created: bool,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

/// A write that can change nothing but the status, or nothing but finalizers and owners.
#[derive(Clone, Copy)]
pub struct Bookkeeping;

/// The new state of an object, made from the live one.
pub struct Proposal {
    /// The object in the request's version.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether field managers are already up to date (server-side apply does that itself).
    pub managed: bool,
}

type Propose<'a> = dyn Fn(&Value) -> Result<Proposal, ApiError> + Send + Sync + 'a;

/// Reads a body that should be one object.
pub fn parse_body(content_type: &str, body: &[u8], kind: &str) -> Result<Value, ApiError> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if k8s_proto::is_protobuf(content_type) {
        let refuse = |e| {
            ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {e}"
            ))
        };
        return k8s_proto::decode(body).map_err(refuse);
    }
    match media {
        "" | "application/json" => {
            serde_json::from_slice(body).map_err(|e| {
                let shown = if body.is_empty() { "<empty>".into() } else { String::from_utf8_lossy(body) };
                ApiError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {} ({shown})",
                    json_error(&e, body)
                ))
            })
        }
        "application/yaml" | "application/x-yaml" | "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
            parse_yaml(body)
        }
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

fn parse_yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text =
        std::str::from_utf8(body).map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
    // Clients send JSON under this type more often than not, and JSON is read much faster.
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    serde_saphyr::from_str(text).map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))
}

fn json_error(error: &serde_json::Error, body: &[u8]) -> String {
    if body.is_empty() || error.is_eof() {
        return "unexpected end of JSON input".into();
    }
    format!("invalid JSON: {error}")
}

/// Checks that a body is of the kind that its path is about; fills in what was left out where that is allowed.
pub fn check_kind(
    served: &Served,
    group: &str,
    version: &str,
    kind: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    let expected = crate::registry::api_version(group, version);
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!("the body must be a {kind} object, in JSON or YAML")));
    };
    let custom = matches!(served.source, Source::Custom(_));
    for (field, right) in [("kind", kind), ("apiVersion", expected.as_str())] {
        let given = map.get(field).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            if custom {
                let text = Value::Object(map.clone()).to_string();
                let what = if field == "kind" { "Kind" } else { "apiVersion" };
                return Err(ApiError::bad_request(format!("Object '{what}' is missing in '{text}'")));
            }
            map.insert(field.into(), right.into());
        }
    }
    let given_version = map["apiVersion"].as_str().unwrap_or_default().to_string();
    let given_kind = map["kind"].as_str().unwrap_or_default().to_string();
    if custom && given_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        )));
    }
    if custom && given_kind != kind {
        return Err(ApiError::bad_request(format!(
            "the kind in the data ({given_kind}) does not match the expected kind ({kind})"
        )));
    }
    // Built-in kinds speak of Go packages here: the version's, and the group's for the form that all versions share.
    let package = group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    let (_, sent_version) = crate::registry::split_api_version(&given_version);
    if given_version != expected {
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{sent_version}\" cannot be handled as a {kind}: no kind \"{given_kind}\" is registered for version \"{given_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    if given_kind != kind {
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{given_kind}) to ({package}.{kind}): unknown conversion"
        )));
    }
    Ok(())
}

/// The body where its text can be searched for duplicate fields.
fn raw_json<'a>(cx: &Context, body: &'a [u8]) -> Option<&'a [u8]> {
    (!k8s_proto::is_protobuf(&cx.content_type)).then_some(body)
}

/// Fields that an endpoint never owns.
fn ignored(served: &Served, part: Part) -> FieldSet {
    let set = match part {
        Part::Main if served.has_status() => json!({"f:status": {}}),
        Part::Main => json!({}),
        // The status endpoint of a custom kind writes nothing but the status; built-in kinds let some metadata through.
        Part::Status => match &served.source {
            Source::Builtin(_) => json!({"f:spec": {}}),
            Source::Custom(_) => {
                let others = served.schema.properties.keys().filter(|k| *k != "status").map(String::as_str);
                others.chain(["metadata", "spec"]).map(|k| (format!("f:{k}"), json!({}))).collect()
            }
        },
        Part::Ephemeral | Part::Resize | Part::Scale => json!({"f:status": {}}),
    };
    FieldSet::parse(&set).unwrap_or_default()
}

/// A write by a manager that is not an apply.
fn request<'a>(
    manager: &'a str,
    api_version: &'a str,
    part: Part,
    now: &'a str,
    ignored: &'a FieldSet,
) -> apply::Request<'a> {
    apply::Request { manager, api_version, subresource: part.subresource(), now, force: false, ignored }
}

/// Letters that Kubernetes puts into generated names: no vowels, so that no words come out.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(crate) fn generated_name(base: &str, random: uuid::Uuid) -> String {
    let mut rest = random.as_u128();
    let suffix: String = (0..5)
        .map(|_| {
            let letter = SUFFIX_LETTERS[(rest % SUFFIX_LETTERS.len() as u128) as usize];
            rest /= SUFFIX_LETTERS.len() as u128;
            char::from(letter)
        })
        .collect();
    let base: String = base.chars().take(58).collect();
    format!("{base}{suffix}")
}

impl ApiServer {
    fn invalid(served: &Served, object: &Value, errors: &[FieldError]) -> ApiError {
        ApiError::invalid(&served.group, &served.kind, meta::name(object), errors)
    }

    /// Answers a POST to a collection.
    pub(crate) async fn create(&self, cx: &Context, body: &[u8]) -> Result<Reply, ApiError> {
        let mut object = parse_body(&cx.content_type, body, &cx.served.kind)?;
        let served = &cx.served;
        check_kind(served, &served.group, &served.version, &served.kind, &mut object)?;
        let warnings = strategy::decode(served, &mut object, raw_json(cx, body), cx.query.field_validation)?;
        let mut written = self.create_object(cx, object, false).await?;
        written.warnings.extend(warnings);
        Ok(self.answer(cx, written))
    }

    /// The answer to a write.
    pub(crate) fn answer(&self, cx: &Context, written: Written) -> Reply {
        let code = if written.created { 201 } else { 200 };
        let reply = match &written.stored {
            Some(stored) if is_plain(&cx.served, cx.form) => {
                let mut text = String::with_capacity(stored.text.len() + 128);
                splice(&cx.served, stored, &mut text);
                Reply::text(code, text)
            }
            _ => {
                let object = Arc::unwrap_or_clone(self.outcome(&cx.served, &written));
                Reply::json(code, self.shape(&cx.served, object, cx.form, &cx.query))
            }
        };
        reply.warn(written.warnings)
    }

    /// The object that a write left.
    pub(crate) fn outcome(&self, served: &Served, written: &Written) -> Arc<Value> {
        let stored = || Arc::new(self.parse_stored(written.stored.as_ref()?, served).ok()?).into();
        written.object.clone().or_else(stored).unwrap_or_default()
    }

    /// Makes an object. `managed` says that its field managers are already written.
    pub(crate) async fn create_object(
        &self,
        cx: &Context,
        mut object: Value,
        managed: bool,
    ) -> Result<Written, ApiError> {
        let base = meta::text(&object, "generateName");
        if !meta::name(&object).is_empty() || base.is_empty() {
            return self.try_create(cx, object, managed).await;
        }
        let mut names = (0..TRIES).map(|_| generated_name(base, self.new_uid()));
        let Some(name) = names.find(|name| self.store().get(&cx.served.table, &cx.key(name)).is_none())
        else {
            return Err(ApiError::already_exists(&cx.served.group_resource(), base));
        };
        meta::edit(&mut object).insert("name".into(), name.into());
        self.try_create(cx, object, managed).await
    }

    async fn try_create(&self, cx: &Context, mut object: Value, managed: bool) -> Result<Written, ApiError> {
        let served = &cx.served;
        self.place(cx, &mut object)?;
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(ApiError::plain("resourceVersion should not be set on objects to be created"));
        }
        strategy::default(served, &mut object);
        // Managers come first: what admission adds belongs to nobody, as on the real server.
        if !managed {
            let blank = strategy::blank(served);
            object = self.manage(cx, blank.as_ref(), object, Part::Main);
        }
        let mut review = Review::new(Operation::Create, cx, None, None);
        self.mutate(&mut review, &mut object).await?;
        self.stamp_new(&mut object);
        // Built-in kinds are prepared and judged in the version that is stored; custom ones in the one that was sent.
        let home = self.home(served);
        if matches!(served.source, Source::Builtin(_)) {
            object = self.convert(object, served, &served.storage_api_version).await?;
        }
        strategy::prepare_create(&home, &mut object);
        // Preparation may bring in what other defaults depend on, such as the generated labels of a job's pods.
        strategy::default(&home, &mut object);
        self.complete(&home, &mut object)?;
        // Judged as the kind that was asked for: events of the newer group have stricter rules than those they are stored as.
        let errors = strategy::validate_create(served, &object);
        if !errors.is_empty() {
            return Err(ApiServer::invalid(served, &object, &errors));
        }
        let _quota = self.validate(&mut review, &object).await?;
        let key =
            Key::new(if served.namespaced { meta::namespace(&object) } else { "" }, meta::name(&object));
        let warnings = std::mem::take(&mut review.warnings);
        if cx.query.dry_run {
            if self.store().get(&served.table, &key).is_some() {
                return Err(ApiError::already_exists(&served.group_resource(), &key.name));
            }
            let object = self.convert(object, served, &served.api_version()).await?;
            let object = Some(Arc::new(object));
            return Ok(Written { object, stored: None, created: true, warnings });
        }
        let at_rest = self.convert(object, served, &served.storage_api_version).await?;
        let stored = self.commit(served, &key, Expect::Absent, &at_rest).map_err(|clash| match clash {
            Clash::Exists => ApiError::already_exists(&served.group_resource(), &key.name),
            Clash::Absent | Clash::Moved => ApiError::internal("a new object cannot have moved"),
        })?;
        self.after_write(served, &key);
        self.written(served, stored, at_rest, None, warnings).await
    }

    /// What a write says that it did. `at_rest` is what was stored, `replaced` the revision that it took the place of.
    async fn written(
        &self,
        served: &Served,
        stored: Stored,
        mut at_rest: Value,
        replaced: Option<Revision>,
        warnings: Vec<String>,
    ) -> Result<Written, ApiError> {
        let created = replaced.is_none();
        if strategy::is_kept_apart(served) {
            // Such an object is next written in part, from its text.
            return Ok(Written { object: None, stored: Some(stored), created, warnings });
        }
        at_rest["apiVersion"] = served.storage_api_version.as_str().into();
        at_rest["kind"] = served.kind.as_str().into();
        meta::edit(&mut at_rest).insert("resourceVersion".into(), stored.revision.to_string().into());
        let at_rest = Arc::new(at_rest);
        self.inner.recent.put(stored.revision, at_rest.clone(), replaced);
        let object = Some(self.as_served(&at_rest, served).await?);
        Ok(Written { object, stored: Some(stored), created, warnings })
    }

    /// An object of the storage version in the version of the request.
    async fn as_served(&self, at_rest: &Arc<Value>, served: &Served) -> Result<Arc<Value>, ApiError> {
        if served.api_version() == served.storage_api_version {
            return Ok(at_rest.clone());
        }
        self.convert((**at_rest).clone(), served, &served.api_version()).await.map(Arc::new)
    }

    /// The kind in its storage version, which judges built-in objects.
    fn home(&self, served: &Arc<Served>) -> Arc<Served> {
        match served.source {
            Source::Builtin(_) => self.kind_of_table(&served.table).unwrap_or_else(|| served.clone()),
            Source::Custom(_) => served.clone(),
        }
    }

    /// Puts the path's namespace into the object, or refuses another one.
    fn place(&self, cx: &Context, object: &mut Value) -> Result<(), ApiError> {
        let given = meta::namespace(object).to_string();
        match (&cx.namespace, cx.served.namespaced) {
            (Some(ns), true) => {
                if given.is_empty() {
                    meta::edit(object).insert("namespace".into(), ns.as_str().into());
                } else if given != *ns {
                    return Err(ApiError::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
            }
            (None, true) => {
                return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
            }
            (_, false) => {
                if !given.is_empty() {
                    return Err(ApiError::bad_request(
                        "namespace may not be set on an object of a cluster-scoped kind",
                    ));
                }
            }
        }
        Ok(())
    }

    /// What only the server can add to a new object: addresses of services, times of first conditions.
    fn complete(&self, served: &Served, object: &mut Value) -> Result<(), ApiError> {
        if served.is("", "services") {
            self.allocate_addresses(object)?;
        }
        if served.is("", "pods") {
            let now = self.clock().rfc3339();
            let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten().filter(|c| c["lastTransitionTime"].is_null()) {
                condition["lastTransitionTime"] = now.as_str().into();
            }
        }
        if served.is("apiextensions.k8s.io", "customresourcedefinitions") {
            object["status"] = crate::crd::initial_status(object);
        }
        Ok(())
    }

    /// Attributes what changed to the request's field manager.
    fn manage(&self, cx: &Context, live: Option<&Value>, new: Value, part: Part) -> Value {
        self.manage_as(&cx.manager(), &cx.served, live, new, part)
    }

    /// Attributes what changed to a field manager.
    pub(crate) fn manage_as(
        &self,
        manager: &str,
        served: &Served,
        live: Option<&Value>,
        new: Value,
        part: Part,
    ) -> Value {
        let (api_version, now, ignored) =
            (served.api_version(), self.clock().rfc3339(), ignored(served, part));
        let request = request(manager, &api_version, part, &now, &ignored);
        let mut managed = apply::update(live, new, &*served.schema, &request);
        if part == Part::Scale {
            // The real server dates no manager of the scale endpoint.
            let managers = managed.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
            for entry in managers.into_iter().flatten().filter(|m| m["subresource"] == "scale") {
                if let Some(entry) = entry.as_object_mut() {
                    entry.remove("time");
                }
            }
        }
        managed
    }

    /// Answers a PUT.
    pub(crate) async fn update(
        &self,
        cx: &Context,
        name: &str,
        part: Part,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let mut sent = parse_body(&cx.content_type, body, &cx.served.kind)?;
        let served = &cx.served;
        check_kind(served, &served.group, &served.version, &served.kind, &mut sent)?;
        let warnings = strategy::decode(served, &mut sent, raw_json(cx, body), cx.query.field_validation)?;
        let given = meta::name(&sent).to_string();
        if given.is_empty() {
            let error = FieldError::required("metadata.name", "name is required");
            return Err(ApiServer::invalid(served, &sent, &[error]));
        }
        if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        self.place(cx, &mut sent)?;
        let key = cx.key(name);
        if allows_create_on_update(served) && self.store().get(&served.table, &key).is_none() {
            self.require_verb(cx, "create", name)?;
            let mut written = self.create_object(cx, sent, false).await?;
            written.warnings.extend(warnings);
            return Ok(self.answer(cx, written));
        }
        let propose = |_: &Value| {
            if meta::text(&sent, "resourceVersion").is_empty() && !allows_unconditional_update(served) {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    json!(0),
                    "must be specified for an update",
                );
                return Err(ApiServer::invalid(served, &sent, &[error]));
            }
            Ok(Proposal { object: sent.clone(), warnings: warnings.clone(), managed: false })
        };
        let written = self.update_object(cx, name, part, None, &propose).await?;
        Ok(self.answer(cx, written))
    }

    /// Answers a PATCH.
    pub(crate) async fn patch(
        &self,
        cx: &Context,
        name: &str,
        part: Part,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let media = cx.content_type.split(';').next().unwrap_or_default().trim();
        if media == "application/apply-patch+yaml" {
            let written = self.server_side_apply(cx, name, part, body).await?;
            return Ok(self.answer(cx, written));
        }
        if cx.query.force.is_some() {
            let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let patch = Patch::parse(media, body, &cx.served)?;
        let propose = |live: &Value| {
            let proposal = self.propose_patch(cx, live, &patch, body)?;
            let given = meta::name(&proposal.object);
            if given != name {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
            Ok(proposal)
        };
        let members = patch.reach(part).filter(|_| !self.is_bookkeeping_reviewed());
        let written = self.update_object(cx, name, part, members, &propose).await?;
        Ok(self.answer(cx, written))
    }

    fn propose_patch(
        &self,
        cx: &Context,
        live: &Value,
        patch: &Patch,
        body: &[u8],
    ) -> Result<Proposal, ApiError> {
        let mut object = patch.apply(live.clone(), &cx.served)?;
        if !object.is_object() {
            return Err(ApiError::bad_request("the patch leaves no object"));
        }
        // A patch that moves an object to another kind or version is refused like an update that does.
        let served = &cx.served;
        check_kind(served, &served.group, &served.version, &served.kind, &mut object)?;
        let raw = matches!(patch, Patch::Merge(_) | Patch::Strategic(_)).then_some(body);
        // What the patch left as it is was decoded when it was written.
        let same = set_aside(served, &mut object, live);
        let decoded = strategy::decode(served, &mut object, raw, cx.query.field_validation);
        if let Some(members) = object.as_object_mut() {
            members.extend(same);
        }
        let warnings = match decoded {
            Ok(warnings) => warnings,
            Err(error) if cx.query.field_validation == FieldValidation::Strict => {
                let at = error.message.find("strict decoding error").unwrap_or(0);
                let patch_text = String::from_utf8_lossy(body).into_owned();
                let error = FieldError::invalid("patch", patch_text, &error.message[at..]);
                return Err(ApiError::invalid("", "", "", &[error]));
            }
            Err(error) => return Err(error),
        };
        Ok(Proposal { object, warnings, managed: false })
    }

    async fn server_side_apply(
        &self,
        cx: &Context,
        name: &str,
        part: Part,
        body: &[u8],
    ) -> Result<Written, ApiError> {
        let served = &cx.served;
        if cx.query.field_manager.is_empty() {
            let error = FieldError::required("fieldManager", "is required for apply patch");
            return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let mut config = parse_yaml(body)?;
        if config["kind"].as_str().unwrap_or_default().is_empty() {
            return Err(ApiError::bad_request("invalid object type: /, Kind="));
        }
        check_kind(served, &served.group, &served.version, &served.kind, &mut config)?;
        let given = meta::name(&config);
        if !given.is_empty() && given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        meta::edit(&mut config).insert("name".into(), name.into());
        let warnings = strategy::decode(served, &mut config, raw_json(cx, body), cx.query.field_validation)?;
        self.place(cx, &mut config)?;
        let sent_version = meta::text(&config, "resourceVersion").to_string();
        let merge = |live: Option<&Value>| -> Result<Value, ApiError> {
            let request = apply::Request {
                manager: &cx.query.field_manager,
                api_version: &served.api_version(),
                subresource: part.subresource(),
                now: &self.clock().rfc3339(),
                force: cx.query.force == Some(true),
                ignored: &ignored(served, part),
            };
            apply::apply(live, &config, &*served.schema, &request).map_err(apply_error)
        };
        let exists = self.store().get(&served.table, &cx.key(name)).is_some();
        if !exists {
            if part != Part::Main {
                return Err(ApiError::not_found(&served.group_resource(), name));
            }
            if !sent_version.is_empty() {
                return Err(ApiError::conflict(&served.group_resource(), name, "the object does not exist"));
            }
            let object = merge(None)?;
            self.require_verb(cx, "create", name)?;
            match self.create_object(cx, object, true).await {
                // Somebody else made it meanwhile: apply to theirs.
                Err(error) if error.reason == "AlreadyExists" => {}
                Ok(mut written) => {
                    written.warnings.extend(warnings);
                    return Ok(written);
                }
                Err(error) => return Err(error),
            }
        }
        let propose = |live: &Value| {
            let mut object = merge(Some(live))?;
            if !sent_version.is_empty() {
                meta::edit(&mut object).insert("resourceVersion".into(), sent_version.as_str().into());
            }
            Ok(Proposal { object, warnings: warnings.clone(), managed: true })
        };
        self.update_object(cx, name, part, None, &propose).await
    }

    /// Changes an object to what `propose` makes of it, trying again while others change it too. Where it is known to be bookkeeping, objects
    /// of a kind that is kept apart are proposed, judged and compared by the members in question alone.
    pub(crate) async fn update_object(
        &self,
        cx: &Context,
        name: &str,
        part: Part,
        members: Option<Bookkeeping>,
        propose: &Propose<'_>,
    ) -> Result<Written, ApiError> {
        let served = &cx.served;
        let key = cx.key(name);
        let gr = served.group_resource();
        for _ in 0..TRIES {
            let stored = self.must_find(served, &key)?;
            let mut apart = members.and_then(|_| self.take_apart(&stored, served));
            let before = match &mut apart {
                Some(apart) => Arc::new(std::mem::take(&mut apart.members)),
                None => self.look_at(&stored, served)?,
            };
            let live = self.as_served(&before, served).await?;
            let proposal = propose(&live)?;
            let pinned = {
                let sent = meta::text(&proposal.object, "resourceVersion");
                if !sent.is_empty() && sent != meta::text(&live, "resourceVersion") {
                    return Err(ApiError::modified(&gr, name));
                }
                // A PUT that names its version must not be tried on another; patches inherit the live version.
                !sent.is_empty()
            };
            let tried = match apart {
                Some(apart) => {
                    self.try_update_members(cx, &key, part, (&stored, apart), &before, proposal)?
                }
                None => self.try_update(cx, &key, part, (&stored, &before), &live, proposal).await?,
            };
            match tried {
                Some(written) => return Ok(written),
                None if pinned && !is_patch(cx) => return Err(ApiError::modified(&gr, name)),
                None => {}
            }
        }
        Err(ApiError::modified(&gr, name))
    }

    /// One try; `None` when the object moved meanwhile.
    async fn try_update(
        &self,
        cx: &Context,
        key: &Key,
        part: Part,
        (stored, before): (&Stored, &Arc<Value>),
        live: &Arc<Value>,
        proposal: Proposal,
    ) -> Result<Option<Written>, ApiError> {
        let served = &cx.served;
        let gr = served.group_resource();
        let Proposal { mut object, warnings, managed } = proposal;
        check_uid(served, key, &object, live)?;
        keep_system_fields(&mut object, live);
        strategy::default(served, &mut object);
        if !managed {
            object = self.manage(cx, Some(live), object, part);
        }
        let mut review = Review::new(Operation::Update, cx, part.subresource(), Some(live.clone()));
        review.warnings = warnings;
        self.mutate(&mut review, &mut object).await?;
        let home = self.home(served);
        let old = match served.source {
            Source::Builtin(_) => {
                object = self.convert(object, served, &served.storage_api_version).await?;
                before
            }
            Source::Custom(_) => live,
        };
        strategy::prepare_update(&home, &mut object, old, part);
        let errors = strategy::validate_update(&home, &object, old, part);
        if !errors.is_empty() {
            return Err(ApiServer::invalid(served, &object, &errors));
        }
        let _quota = self.validate(&mut review, &object).await?;
        let warnings = std::mem::take(&mut review.warnings);
        if cx.query.dry_run {
            let object = Some(Arc::new(self.convert(object, served, &served.api_version()).await?));
            return Ok(Some(Written { object, stored: None, created: false, warnings }));
        }
        let mut at_rest = self.convert(object, served, &served.storage_api_version).await?;
        apply::keep_times(before, &mut at_rest);
        if unchanged(&at_rest, before) {
            // Nothing to write: no new version, no event.
            let (object, stored) = (Some(live.clone()), Some(stored.clone()));
            return Ok(Some(Written { object, stored, created: false, warnings }));
        }
        if meta::terminating(&at_rest) && !crate::delete::is_held(served, &at_rest) {
            return match self.erase(served, key, stored.revision, &at_rest) {
                Ok(last) => {
                    self.after_delete(served, key);
                    let object = Some(Arc::new(self.read(&last, served).await?));
                    Ok(Some(Written { object, stored: Some(last), created: false, warnings }))
                }
                Err(Clash::Absent) => Err(ApiError::not_found(&gr, &key.name)),
                Err(_) => Ok(None),
            };
        }
        match self.commit(served, key, Expect::At(stored.revision), &at_rest) {
            Ok(now) => {
                self.after_write(served, key);
                self.written(served, now, at_rest, Some(stored.revision), warnings).await.map(Some)
            }
            Err(Clash::Absent) => Err(ApiError::not_found(&gr, &key.name)),
            Err(_) => Ok(None),
        }
    }

    /// The same for an object that is kept apart; nobody has asked to review such writes. `before` are its members as they are.
    fn try_update_members(
        &self,
        cx: &Context,
        key: &Key,
        part: Part,
        (stored, mut apart): (&Stored, Apart),
        before: &Value,
        proposal: Proposal,
    ) -> Result<Option<Written>, ApiError> {
        let served = &cx.served;
        let Proposal { object: mut members, warnings, .. } = proposal;
        check_uid(served, key, &members, before)?;
        keep_system_fields(&mut members, before);
        strategy::default_members(served, &mut members);
        strategy::prepare_update(served, &mut members, before, part);
        let changed = !unchanged(&members, before);
        let by_spec = part == Part::Status && strategy::is_status_judged_by_spec(served);
        let by_spec = by_spec.then(|| apart.read("spec")).flatten();
        if let (Some(spec), Some(members)) = (by_spec, members.as_object_mut()) {
            members.insert("spec".into(), spec);
        }
        let errors = strategy::validate_members(served, &members, before, part);
        if !errors.is_empty() {
            return Err(ApiServer::invalid(served, &members, &errors));
        }
        if let Some(members) = members.as_object_mut() {
            members.remove("spec");
        }
        if !changed && !cx.query.dry_run {
            let stored = Some(stored.clone());
            return Ok(Some(Written { object: None, stored, created: false, warnings }));
        }
        if changed {
            let (manager, api_version) = (cx.manager(), served.api_version());
            let (now, ignored) = (self.clock().rfc3339(), ignored(served, part));
            let request = request(&manager, &api_version, part, &now, &ignored);
            let steps: &[&str] = match part {
                Part::Status => &["f:status"],
                _ => &["f:finalizers", "f:ownerReferences"],
            };
            apart.record.attribute(steps, before, &members, &*served.schema, &request);
        }
        apart.members = members;
        if cx.query.dry_run {
            let object = Some(Arc::new(apart.whole()));
            return Ok(Some(Written { object, stored: None, created: false, warnings }));
        }
        let draft = &mut |revision| apart.draft(served, None, revision);
        let ends = meta::terminating(&apart.members) && !crate::delete::is_held(served, &apart.members);
        let done = if ends {
            self.store().delete(&served.table, key, stored.revision, draft)
        } else {
            self.store().put(&served.table, key, Expect::At(stored.revision), draft)
        };
        match done {
            Ok(now) => Ok(Some(Written { object: None, stored: Some(now), created: false, warnings })),
            Err(Clash::Absent) => Err(ApiError::not_found(&served.group_resource(), &key.name)),
            Err(_) => Ok(None),
        }
    }

    /// What the server itself does after an object was written.
    pub(crate) fn after_write(&self, served: &Served, key: &Key) {
        if served.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.establish(&key.name);
        }
        self.after_role(served);
    }

    fn after_role(&self, served: &Served) {
        if self.inner.access.is_some() && served.is("rbac.authorization.k8s.io", "clusterroles") {
            self.aggregate_roles();
        }
    }

    /// What the server itself does after an object is gone.
    pub(crate) fn after_delete(&self, served: &Served, key: &Key) {
        if served.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.store().retire(&key.name);
            self.reload_crds();
        }
        self.after_role(served);
    }
}

/// Refuses a write that is meant for another object of the same name.
fn check_uid(served: &Served, key: &Key, object: &Value, live: &Value) -> Result<(), ApiError> {
    let uid = meta::uid(object);
    if !uid.is_empty() && uid != meta::uid(live) {
        let place = match (&served.source, served.namespaced) {
            (Source::Builtin(_), true) => format!("{}/{}", served.plural, key.namespace),
            (Source::Builtin(_), false) => served.plural.clone(),
            (Source::Custom(_), true) => format!("{}/{}/{}", served.group, served.plural, key.namespace),
            (Source::Custom(_), false) => format!("{}/{}", served.group, served.plural),
        };
        return Err(ApiError::conflict(
            &served.group_resource(),
            &key.name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{place}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                key.name,
                meta::uid(live)
            ),
        ));
    }
    Ok(())
}

fn is_patch(cx: &Context) -> bool {
    cx.content_type.contains("patch")
}

/// Kinds whose updates need no resourceVersion: all built-in ones but those that say otherwise.
fn allows_unconditional_update(served: &Served) -> bool {
    match &served.source {
        Source::Custom(_) => false,
        Source::Builtin(_) => !matches!(
            (served.group.as_str(), served.plural.as_str()),
            ("apiextensions.k8s.io", "customresourcedefinitions")
                | ("coordination.k8s.io", "leases")
                | ("admissionregistration.k8s.io", _)
                | ("apiregistration.k8s.io", _)
                | ("networking.k8s.io", _)
                | ("policy", _)
        ),
    }
}

/// Kinds that a PUT creates when they are not there.
fn allows_create_on_update(served: &Served) -> bool {
    matches!(
        (served.group.as_str(), served.plural.as_str()),
        ("", "endpoints" | "events" | "limitranges" | "services")
            | ("coordination.k8s.io", "leases")
            | ("events.k8s.io", "events")
            | ("rbac.authorization.k8s.io", _)
            | ("node.k8s.io", "runtimeclasses")
    )
}

/// Metadata that only the server writes.
fn keep_system_fields(object: &mut Value, live: &Value) {
    let metadata = meta::edit(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "generateName",
        "resourceVersion",
    ] {
        match live["metadata"].get(field) {
            Some(v) => metadata.insert(field.into(), v.clone()),
            None => metadata.remove(field),
        };
    }
}

/// Whether two states differ in nothing but the resourceVersion.
fn unchanged(new: &Value, old: &Value) -> bool {
    fn metadata(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        let all = object.get("metadata").and_then(Value::as_object).into_iter().flatten();
        all.filter(|(name, _)| *name != "resourceVersion")
    }
    let members = |v: &'_ Value| v.as_object().map_or(0, Map::len);
    let same = |(k, v): (&String, &Value)| k == "metadata" || old.get(k) == Some(v);
    members(new) == members(old)
        && new.as_object().into_iter().flatten().all(same)
        && metadata(new).eq(metadata(old))
}

/// Takes out of an object the members that are as they were. A custom kind's schema may have changed since it was written, so its
/// objects are looked at whole.
fn set_aside(served: &Served, object: &mut Value, live: &Value) -> Vec<(String, Value)> {
    let (Source::Builtin(_), Some(members)) = (&served.source, object.as_object_mut()) else {
        return Vec::new();
    };
    let mut same = Vec::new();
    for name in ["metadata", "spec", "status"] {
        if members.get(name).is_some() && members.get(name) == live.get(name) {
            same.extend(members.remove_entry(name));
        }
    }
    same
}

fn apply_error(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let cause = |c: &apply::Conflict| json!({"reason": "FieldManagerConflict", "message": c.message(), "field": c.field.to_string()});
            let causes = conflicts.iter().map(cause).collect();
            ApiError::apply_conflict(ApplyError::Conflicts(conflicts).to_string(), causes)
        }
        ApplyError::ManagedFields => ApiError::bad_request("metadata.managedFields must be nil"),
        other => ApiError::plain(other.to_string()),
    }
}

fn json_kind(body: &[u8]) -> &'static str {
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        _ => "object",
    }
}

/// A parsed patch body.
enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    fn parse(media: &str, body: &[u8], served: &Served) -> Result<Patch, ApiError> {
        let value = |body: &[u8]| -> Result<Value, ApiError> {
            let value: Value = serde_json::from_slice(body).map_err(|e| {
                ApiError::bad_request(format!("error decoding patch: {}", json_error(&e, body)))
            })?;
            if value.is_object() {
                Ok(value)
            } else {
                Err(ApiError::bad_request("error decoding patch: the patch must be an object"))
            }
        };
        match media {
            "application/json-patch+json" => serde_json::from_slice(body)
                .map(Patch::Json)
                .map_err(|_| ApiError::bad_request(format!("error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp", json_kind(body)))),
            "application/merge-patch+json" => Ok(Patch::Merge(value(body)?)),
            "application/strategic-merge-patch+json" if matches!(served.source, Source::Builtin(_)) => {
                Ok(Patch::Strategic(value(body)?))
            }
            "application/strategic-merge-patch+json" => Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(ApiError::unsupported_patch_type()),
        }
    }

    /// What becomes of an object.
    fn apply(&self, mut object: Value, served: &Served) -> Result<Value, ApiError> {
        match self {
            Patch::Json(patch) => {
                json_patch::patch(&mut object, patch).map_err(|_| ApiError::unprocessable())?;
                Ok(object)
            }
            Patch::Merge(patch) => {
                k8s_merge::merge_patch(&mut object, patch);
                Ok(object)
            }
            Patch::Strategic(patch) => k8s_merge::strategic_merged(object, patch, &*served.schema)
                .map_err(|e| ApiError::bad_request(e.to_string())),
        }
    }

    /// Whether it can change nothing but the status, or nothing but finalizers and owners.
    fn reach(&self, part: Part) -> Option<Bookkeeping> {
        let (Patch::Merge(patch) | Patch::Strategic(patch)) = self else { return None };
        let all = |v: Option<&'_ Value>, known: fn(&str) -> bool| match v {
            None => true,
            Some(Value::Object(members)) => members.keys().all(|name| known(name)),
            Some(_) => false,
        };
        let status = patch.get("status");
        let (fits, known): (bool, fn(&str) -> bool) = match part {
            // Whether a node may be nominated depends on the spec.
            Part::Status => {
                (status.is_some_and(|s| s.is_object() && s.get("nominatedNodeName").is_none()), |name| {
                    matches!(name, "name" | "namespace" | "uid" | "resourceVersion")
                })
            }
            Part::Main => (status.is_none(), |name| {
                let list = name.strip_prefix("$setElementOrder/").unwrap_or(name);
                let list = list.strip_prefix("$deleteFromPrimitiveList/").unwrap_or(list);
                matches!(
                    list,
                    "finalizers" | "ownerReferences" | "uid" | "resourceVersion" | "name" | "namespace"
                )
            }),
            _ => return None,
        };
        let only = all(Some(patch), |name| matches!(name, "apiVersion" | "kind" | "metadata" | "status"));
        (fits && only && all(patch.get("metadata"), known)).then_some(Bookkeeping)
    }
}
