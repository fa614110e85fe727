//! Create, update and patch. In: a request context and a body. Out: the object as it now is.
//!
//! All three end in the same two paths, [`ApiServer::create_object`] and [`ApiServer::update_object`]; a patch is an update
//! whose new state is computed from the live one, and is tried again when the live one moved meanwhile.

use crate::access::User;
use crate::admission::{Bookkeeping, Operation, Review};
use crate::apart::Apart;
use crate::audit::Notes;
use crate::meta;
use crate::negotiate::Form;
use crate::query::Query;
use crate::read::{is_plain, splice};
use crate::registry::{Served, Source};
use crate::reply::Reply;
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::store::{Clash, Expect, Key, Revision, Stored};
use crate::strategy::{self, Part};
use k8s_merge::apply::{self, ApplyError, FieldSet, Path, Record};
use k8s_schema::FieldError;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

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

/// How a new object came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// By a POST.
    Posted,
    /// By a PUT of what is not there.
    Put,
    /// By an apply, which has written the field managers already.
    Applied,
}

/// The new state of an object, made from the live one.
pub struct Proposal {
    /// The object in the request's version.
    pub object: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
    /// Whether field managers are already up to date (server-side apply does that itself).
    pub managed: bool,
}

/// What one try of a write is about to change.
#[derive(Clone, Copy)]
struct Target<'a> {
    key: &'a Key,
    part: Part,
    /// The object as it is stored.
    stored: &'a Stored,
    /// The same, read.
    before: &'a Arc<Value>,
    /// The same in the request's version.
    live: &'a Arc<Value>,
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
        "" | "application/json" => serde_json::from_slice(body).map_err(|e| {
            let error = format!("couldn't get version/kind; json parse error: {}", json_error(&e, body));
            unrecognized(kind, &error, body)
        }),
        "application/yaml"
        | "application/x-yaml"
        | "application/apply-patch+yaml"
        | "application/apply-patch+cbor" => parse_yaml(body),
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// A body that says no kind.
fn unrecognized(kind: &str, why: &str, body: &[u8]) -> ApiError {
    // As much of it as fits in a message.
    const SHOWN: usize = 30;
    let beginning = body.get(..SHOWN).unwrap_or(body);
    let more = if beginning.len() < body.len() { " ..." } else { "" };
    let shown = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(beginning).into_owned(),
        Some(_) => beginning.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({shown}{more})"
    ))
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
    body: &[u8],
) -> Result<(), ApiError> {
    let expected = crate::registry::api_version(group, version);
    let Some(map) = object.as_object_mut() else {
        return Err(ApiError::bad_request(format!("the body must be a {kind} object, in JSON or YAML")));
    };
    let builtin = match &served.source {
        Source::Builtin(builtin) => Some(*builtin),
        Source::Custom(_) => None,
    };
    for (field, right) in [("kind", kind), ("apiVersion", expected.as_str())] {
        let given = map.get(field).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            if builtin.is_none() {
                let text = String::from_utf8_lossy(body);
                return Err(match map.get("kind").and_then(Value::as_str) {
                    Some(given) if field == "apiVersion" => ApiError::bad_request(format!(
                        "{given} in version \"\" cannot be handled as a {kind}: Object 'apiVersion' is missing in '{text}'"
                    )),
                    _ => unrecognized(kind, &format!("Object 'Kind' is missing in '{text}'"), body),
                });
            }
            map.insert(field.into(), right.into());
        }
    }
    let given_version = map["apiVersion"].as_str().unwrap_or_default();
    let given_kind = map["kind"].as_str().unwrap_or_default();
    let Some(builtin) = builtin else {
        // Another kind is found out when the object is judged.
        return if given_version == expected {
            Ok(())
        } else {
            Err(ApiError::bad_request(format!(
                "the API version in the data ({given_version}) does not match the expected API version ({expected})"
            )))
        };
    };
    if (given_version, given_kind) == (expected.as_str(), kind) {
        return Ok(());
    }
    let (sent_group, sent_version) = crate::registry::split_api_version(given_version);
    let is_known = k8s_builtin::kinds(builtin.kube)
        .iter()
        .any(|k| (k.group, k.version, k.kind) == (sent_group, sent_version, given_kind));
    if given_version != expected || !is_known {
        return Err(ApiError::bad_request(format!(
            "{given_kind} in version \"{sent_version}\" cannot be handled as a {kind}: no kind \"{given_kind}\" is registered for version \"{given_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    // Built-in kinds speak of Go packages here: the version's, and the group's for the form that all versions share.
    let package = group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    Err(ApiError::bad_request(format!(
        "{given_kind} in version \"{version}\" cannot be handled as a {kind}: converting ({version}.{given_kind}) to ({package}.{kind}): unknown conversion"
    )))
}

/// The body where its text must be searched for duplicate fields. `read` is what was read from it.
fn raw_json<'a>(cx: &Context, body: &'a [u8], read: &Value) -> Option<&'a [u8]> {
    let is_text = !k8s_proto::is_protobuf(&cx.content_type);
    (is_text && !k8s_schema::is_each_field_once(body, read)).then_some(body)
}

/// Fields that an endpoint never owns.
fn ignored(served: &Served, part: Part) -> Cow<'static, FieldSet> {
    static STATUS: LazyLock<FieldSet> = LazyLock::new(|| [Path::fields(["status"])].into_iter().collect());
    let set = match part {
        Part::Main if !served.has_status() => return Cow::Borrowed(FieldSet::EMPTY),
        Part::Main | Part::Ephemeral | Part::Resize | Part::Scale => return Cow::Borrowed(&STATUS),
        // The status endpoint of a custom kind writes nothing but the status; built-in kinds let some metadata through.
        Part::Status => match &served.source {
            Source::Builtin(kind) => k8s_builtin::unowned_by_status(kind),
            Source::Custom(_) => {
                let others = served.schema.properties.keys().filter(|k| *k != "status").map(String::as_str);
                others.chain(["metadata", "spec"]).map(|k| (format!("f:{k}"), json!({}))).collect()
            }
        },
    };
    Cow::Owned(FieldSet::parse(&set).unwrap_or_default())
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
        // A custom object is called what it says it is.
        let kind = match &served.source {
            Source::Custom(_) => object.get("kind").and_then(Value::as_str).unwrap_or(&served.kind),
            Source::Builtin(_) => &served.kind,
        };
        ApiError::invalid(&served.group, kind, meta::name(object), errors)
    }

    /// Answers a POST to a collection.
    pub(crate) async fn create(&self, cx: &Context, body: &[u8]) -> Result<Reply, ApiError> {
        let mut object = parse_body(&cx.content_type, body, &cx.served.kind)?;
        let served = &cx.served;
        let raw = raw_json(cx, body, &object);
        check_kind(served, &served.group, &served.version, &served.kind, &mut object, body)?;
        let warnings = strategy::decode(served, &mut object, raw, cx.query.field_validation)?;
        let written = self.create_object(cx, object, Origin::Posted, warnings).await?;
        Ok(self.answer(cx, written))
    }

    /// The answer to a write.
    pub(crate) fn answer(&self, cx: &Context, written: Written) -> Reply {
        let code = if written.created { 201 } else { 200 };
        let reply = match &written.stored {
            Some(stored) if is_plain(&cx.served, cx.form, stored) => {
                let mut text = String::with_capacity(stored.text.len() + 128);
                splice(&cx.served, stored, cx.form, &mut text);
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

    /// Makes an object; `warnings` is what there is to say so far.
    pub(crate) async fn create_object(
        &self,
        cx: &Context,
        mut object: Value,
        origin: Origin,
        warnings: Vec<String>,
    ) -> Result<Written, ApiError> {
        let base = meta::text(&object, "generateName");
        if !meta::name(&object).is_empty() || base.is_empty() {
            return self.try_create(cx, object, origin, warnings).await;
        }
        let mut names = (0..TRIES).map(|_| generated_name(base, self.new_uid()));
        let Some(name) = names.find(|name| self.store().get(&cx.served.table, &cx.key(name)).is_none())
        else {
            return Err(ApiError::already_exists(&cx.served.group_resource(), base));
        };
        meta::edit(&mut object).insert("name".into(), name.into());
        self.try_create(cx, object, origin, warnings).await
    }

    async fn try_create(
        &self,
        cx: &Context,
        object: Value,
        origin: Origin,
        warnings: Vec<String>,
    ) -> Result<Written, ApiError> {
        let mut review = Review::new(Operation::Create, cx, None, None);
        review.warnings = warnings;
        // What was said on the way is said with a refusal too.
        let created = self.create_reviewed(cx, object, origin, &mut review).await;
        created.map_err(|error| error.warned(review.warnings))
    }

    async fn create_reviewed(
        &self,
        cx: &Context,
        mut object: Value,
        origin: Origin,
        review: &mut Review,
    ) -> Result<Written, ApiError> {
        let served = &cx.served;
        let sent_version = meta::text(&object, "resourceVersion").to_owned();
        self.place(cx, &mut object)?;
        strategy::default(served, &mut object);
        // Managers come first: what admission adds belongs to nobody, as on the real server.
        let record;
        (object, record) = match origin {
            Origin::Applied => (object, None),
            Origin::Posted | Origin::Put => self.manage_new(cx, object),
        };
        self.mutate(review, &mut object).await?;
        self.stamp_new(&mut object);
        // Built-in kinds are prepared and judged in the version that is stored; custom ones in the one that was sent.
        let home = self.home(served);
        if matches!(served.source, Source::Builtin(_)) {
            object = self.convert(object, served, &served.storage_api_version).await?;
        }
        strategy::prepare_create(&home, &mut object);
        // Preparation may bring in what other defaults depend on, such as the generated labels of a job's pods; nothing of the kind in a pod, and
        // those come by the thousand.
        if !served.is("", "pods") {
            strategy::default(&home, &mut object);
        }
        self.complete(&home, &mut object)?;
        // Judged as the kind that was asked for: events of the newer group have stricter rules than those they are stored as.
        let errors = strategy::validate_create(served, &object);
        if !errors.is_empty() {
            return Err(ApiServer::invalid(served, &object, &errors));
        }
        review.warnings.extend(strategy::warnings(&home, &object, None));
        let _quota = self.validate(review, &object).await?;
        let key =
            Key::new(if served.namespaced { meta::namespace(&object) } else { "" }, meta::name(&object));
        let warnings = review.warnings.clone();
        // Only where it is stored by a POST: what a PUT or an apply makes has the version that it gets.
        if origin == Origin::Posted && !cx.query.dry_run && !sent_version.is_empty() {
            return Err(ApiError::plain("resourceVersion should not be set on objects to be created"));
        }
        if cx.query.dry_run {
            if self.store().get(&served.table, &key).is_some() {
                return Err(self.exists_already(served, &key));
            }
            let mut object = self.convert(object, served, &served.api_version()).await?;
            if !sent_version.is_empty() {
                meta::edit(&mut object).insert("resourceVersion".into(), sent_version.into());
            }
            let object = Some(Arc::new(object));
            return Ok(Written { object, stored: None, created: true, warnings });
        }
        let at_rest = self.convert(object, served, &served.storage_api_version).await?;
        let record = record.unwrap_or_default();
        let stored = self.commit_recorded(served, &key, Expect::Absent, &at_rest, &record);
        let stored = stored.map_err(|clash| match clash {
            Clash::Exists => self.exists_already(served, &key),
            Clash::Absent | Clash::Moved => ApiError::internal("a new object cannot have moved"),
        })?;
        self.after_write(served, &key);
        self.written(served, stored, at_rest, None, warnings).await
    }

    fn exists_already(&self, served: &Served, key: &Key) -> ApiError {
        let mut error = ApiError::already_exists(&served.group_resource(), &key.name);
        if self.store().get(&served.table, key).is_some_and(|stored| stored.facts.terminating) {
            error.message = format!("object is being deleted: {}", error.message);
        }
        error
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

    /// An object as it was stored in the version of the request.
    async fn as_served(&self, at_rest: &Arc<Value>, served: &Served) -> Result<Arc<Value>, ApiError> {
        if at_rest["apiVersion"] == served.api_version() {
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
                    meta::edit(object).remove("namespace");
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

    /// Attributes a new object to the request's field manager. The record is kept apart where nobody looks at it before it is stored.
    fn manage_new(&self, cx: &Context, mut object: Value) -> (Value, Option<Record>) {
        let (served, blank) = (&cx.served, strategy::blank(&cx.served));
        let (manager, api_version, now) = (cx.manager(), served.api_version(), self.clock().rfc3339());
        let ignored = ignored(served, Part::Main);
        let request = request(&manager, &api_version, Part::Main, &now, &ignored);
        let Some(record) = Record::of_new(blank.as_ref(), &object, &*served.typed, &request) else {
            return (apply::update(blank.as_ref(), object, &*served.typed, &request), None);
        };
        let is_looked_at = cx.query.dry_run || self.has_webhooks() || self.has_policies();
        if strategy::is_kept_apart(served) && !is_looked_at {
            return (object, Some(record));
        }
        crate::apart::show_record(&record, &mut object);
        (object, None)
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
        apply::update(live, new, &*served.typed, &request)
    }

    /// Attributes the replicas at a dotted path, written through the scale endpoint. `before` are those there were.
    pub(crate) fn manage_scale(&self, cx: &Context, object: &mut Value, path: &str, before: i64) {
        let (manager, api_version, now) = (cx.manager(), cx.served.api_version(), self.clock().rfc3339());
        let request = request(&manager, &api_version, Part::Scale, &now, FieldSet::EMPTY);
        apply::scaled(object, &path.split('.').collect::<Vec<_>>(), before, &request);
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
        let raw = raw_json(cx, body, &sent);
        check_kind(served, &served.group, &served.version, &served.kind, &mut sent, body)?;
        let warnings = strategy::decode(served, &mut sent, raw, cx.query.field_validation)?;
        let said = |error: ApiError| error.warned(warnings.clone());
        self.place(cx, &mut sent).map_err(said)?;
        check_name(&sent, name).map_err(said)?;
        let key = cx.key(name);
        if part == Part::Main
            && allows_create_on_update(served)
            && self.store().get(&served.table, &key).is_none()
        {
            self.require_verb(cx, "create", name)?;
            check_uid(cx, &key, &sent, &Value::Null).map_err(said)?;
            let written = self.create_object(cx, sent, Origin::Put, warnings).await?;
            return Ok(self.answer(cx, written));
        }
        let propose = |live: &Value| {
            check_uid(cx, &key, &sent, live)?;
            if meta::text(&sent, "resourceVersion").is_empty() && !allows_unconditional_update(served) {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    json!(0),
                    "must be specified for an update",
                );
                // Here, alone, the real server names the resource and not the kind.
                return Err(ApiError::invalid(&served.group, &served.plural, name, &[error]));
            }
            Ok(Proposal { object: sent.clone(), warnings: warnings.clone(), managed: false })
        };
        let written = self.update_object(cx, name, part, None, &propose).await.map_err(said)?;
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
        // The object is looked for before the patch is looked at.
        let patch = Patch::parse(media, body);
        let propose = |live: &Value| {
            let patch = patch.as_ref().map_err(Clone::clone)?;
            let mut proposal = self.propose_patch(cx, live, patch, body)?;
            let said = |error: ApiError| error.warned(proposal.warnings.clone());
            self.place(cx, &mut proposal.object).map_err(said)?;
            check_name(&proposal.object, name).map_err(said)?;
            Ok(proposal)
        };
        let members = patch.as_ref().ok().and_then(|patch| patch.reach(part, &cx.served));
        let members = members.filter(|what| !self.is_reviewed(*what));
        let mut written = self.update_object(cx, name, part, members, &propose).await;
        let is_unreadable = |e: &ApiError| e.details.get("causes").is_some_and(|c| c[0]["field"] == "patch");
        if members.is_some() && written.as_ref().is_err_and(is_unreadable) {
            // Such a refusal shows the whole object.
            written = self.update_object(cx, name, part, None, &propose).await;
        }
        Ok(self.answer(cx, written?))
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
        check_kind(served, &served.group, &served.version, &served.kind, &mut object, body)?;
        let raw = match patch {
            Patch::Merge(read) | Patch::Strategic(read) => raw_json(cx, body, read),
            Patch::Json(_) => None,
        };
        // What the patch left as it is was decoded when it was written.
        let same = set_aside(served, &mut object, live);
        let decoded = strategy::decode(served, &mut object, raw, cx.query.field_validation);
        if let Some(members) = object.as_object_mut() {
            members.extend(same);
        }
        let warnings = match decoded {
            Ok(warnings) => warnings,
            Err(error) => {
                let why = why_unreadable(&error.message);
                let shown = match patch {
                    Patch::Strategic(patch) => k8s_merge::go_text(patch),
                    // As the patch left it, with what reading it took away.
                    Patch::Json(_) | Patch::Merge(_) => patch.apply(live.clone(), served)?.to_string(),
                };
                let error = FieldError::invalid("patch", shown, why);
                return Err(ApiError::invalid("", "", "", &[error]));
            }
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
        if part != Part::Main {
            // Only objects are made by an apply, not their parts.
            self.must_find(served, &cx.key(name))?;
        }
        let config = parse_yaml(body)?;
        check_applied_type(served, &config)?;
        let warnings: Vec<String> = Vec::new();
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
            let mut merged = apply::apply(live, &config, &*served.typed, &request).map_err(apply_error)?;
            if let Source::Builtin(kind) = &served.source
                && let Some(problem) = k8s_builtin::decode_error(kind, &merged)
            {
                return Err(unconvertible(served, &config, &problem));
            }
            self.place(cx, &mut merged)?;
            check_name(&merged, name)?;
            Ok(merged)
        };
        let exists = self.store().get(&served.table, &cx.key(name)).is_some();
        if !exists {
            let object = merge(None)?;
            let uid = meta::uid(&config);
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(ApiError::conflict(&served.group_resource(), name, &why));
            }
            self.require_verb(cx, "create", name)?;
            match self.create_object(cx, object, Origin::Applied, warnings.clone()).await {
                // Somebody else made it meanwhile: apply to theirs.
                Err(error) if error.reason == "AlreadyExists" => {}
                done => return done,
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
            let mut apart =
                members.and_then(|what| Some((what, self.take_apart(&stored, served, what.into())?)));
            let before = match &mut apart {
                Some((_, apart)) => Arc::new(std::mem::take(&mut apart.members)),
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
            let target = Target { key: &key, part, stored: &stored, before: &before, live: &live };
            let tried = match apart {
                Some(apart) => self.try_update_members(cx, target, apart, proposal)?,
                None => self.try_update(cx, target, proposal).await?,
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
        target: Target<'_>,
        proposal: Proposal,
    ) -> Result<Option<Written>, ApiError> {
        let old = Some(target.live.clone());
        let mut review = Review::new(Operation::Update, cx, target.part.subresource(), old);
        review.warnings = proposal.warnings;
        let updated = self.update_reviewed(cx, target, proposal.object, proposal.managed, &mut review).await;
        updated.map_err(|error| error.warned(review.warnings))
    }

    async fn update_reviewed(
        &self,
        cx: &Context,
        Target { key, part, stored, before, live }: Target<'_>,
        mut object: Value,
        managed: bool,
        review: &mut Review,
    ) -> Result<Option<Written>, ApiError> {
        let served = &cx.served;
        let gr = served.group_resource();
        let uid = meta::text(&object, "uid").to_owned();
        keep_system_fields(&mut object, live);
        // Only whoever sends all of an object means one object by its uid; a patch tries to change it.
        if !uid.is_empty() {
            meta::edit(&mut object).insert("uid".into(), uid.into());
        }
        strategy::default(served, &mut object);
        if matches!(served.source, Source::Custom(_)) && object["kind"] != live["kind"] {
            // Nobody can say what was changed by an object of another kind; the books are closed.
            meta::edit(&mut object).remove("managedFields");
        } else if !managed {
            object = self.manage(cx, Some(live), object, part);
        }
        self.mutate(review, &mut object).await?;
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
        if home.is("batch", "jobs") {
            // A job without labels has those of its template, which a write of its status does not bring.
            strategy::default(&home, &mut object);
        }
        if matches!(part, Part::Main | Part::Scale) {
            review.warnings.extend(strategy::warnings(&home, &object, Some(old)));
        }
        let _quota = self.validate(review, &object).await?;
        let warnings = review.warnings.clone();
        if cx.query.dry_run {
            let object = Some(Arc::new(self.convert(object, served, &served.api_version()).await?));
            return Ok(Some(Written { object, stored: None, created: false, warnings }));
        }
        let mut at_rest = self.convert(object, served, &served.storage_api_version).await?;
        apply::keep_times(before, &mut at_rest);
        if unchanged(&at_rest, before) && !self.is_read_otherwise(stored, served) {
            // Nothing to write: no new version, no event.
            let (object, stored) = (Some(live.clone()), Some(stored.clone()));
            return Ok(Some(Written { object, stored, created: false, warnings }));
        }
        if meta::terminating(&at_rest) && !crate::delete::is_held(served, &at_rest) {
            // It goes as it was: whoever watches never sees what the last write asked for.
            return match self.erase(served, key, stored.revision, before) {
                Ok(_) => {
                    self.after_delete(served, key);
                    let object = Some(self.as_served(&Arc::new(at_rest), served).await?);
                    Ok(Some(Written { object, stored: None, created: false, warnings }))
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

    /// The same for an object that is kept apart, of which the target has the members as they are; nobody has asked to review such writes.
    fn try_update_members(
        &self,
        cx: &Context,
        Target { key, part, stored, before, .. }: Target<'_>,
        (what, mut apart): (Bookkeeping, Apart),
        proposal: Proposal,
    ) -> Result<Option<Written>, ApiError> {
        let served = &cx.served;
        let Proposal { object: mut members, warnings, .. } = proposal;
        let uid = meta::text(&members, "uid").to_owned();
        keep_system_fields(&mut members, before);
        if !uid.is_empty() {
            meta::edit(&mut members).insert("uid".into(), uid.into());
        }
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
            let steps: &[&str] = match what {
                Bookkeeping::Status => &["f:status"],
                Bookkeeping::Owners => &["f:finalizers", "f:ownerReferences"],
                Bookkeeping::Labels => &["f:labels", "f:annotations", "f:finalizers", "f:ownerReferences"],
            };
            apart.record.attribute(steps, before, &members, &*served.typed, &request);
        }
        apart.members = members;
        if cx.query.dry_run {
            let object = Some(Arc::new(apart.whole()));
            return Ok(Some(Written { object, stored: None, created: false, warnings }));
        }
        if meta::terminating(&apart.members) && !crate::delete::is_held(served, &apart.members) {
            // It goes as it was.
            let last = self
                .take_apart(stored, served, what.into())
                .ok_or_else(|| ApiError::internal("an object that was just read cannot be read"))?;
            let draft = last.draft(served, None);
            return match self.store().delete(&served.table, key, stored.revision, draft) {
                Ok(_) => {
                    let object = Some(Arc::new(apart.whole()));
                    Ok(Some(Written { object, stored: None, created: false, warnings }))
                }
                Err(Clash::Absent) => Err(ApiError::not_found(&served.group_resource(), &key.name)),
                Err(_) => Ok(None),
            };
        }
        let draft = apart.draft(served, None);
        match self.store().put(&served.table, key, Expect::At(stored.revision), draft) {
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
fn check_uid(cx: &Context, key: &Key, object: &Value, live: &Value) -> Result<(), ApiError> {
    let served = &cx.served;
    let uid = meta::uid(object);
    if !uid.is_empty() && uid != meta::uid(live) {
        // Some kinds are older than the names that they have now.
        let folder = match (served.group.as_str(), served.plural.as_str()) {
            ("", "services") => "services/specs",
            ("", "endpoints") => "services/endpoints",
            ("", "nodes") => "minions",
            ("", "replicationcontrollers") => "controllers",
            (_, plural) => plural,
        };
        // A dry run does not get as far as to the store.
        let root = if cx.query.dry_run { "" } else { "/registry" };
        let place = match (&served.source, served.namespaced) {
            (Source::Builtin(_), true) => format!("{folder}/{}", key.namespace),
            (Source::Builtin(_), false) => folder.to_owned(),
            (Source::Custom(_), true) => format!("{}/{}/{}", served.group, served.plural, key.namespace),
            (Source::Custom(_), false) => format!("{}/{}", served.group, served.plural),
        };
        return Err(ApiError::conflict(
            &served.group_resource(),
            &key.name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: {root}/{place}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                key.name,
                meta::uid(live)
            ),
        ));
    }
    Ok(())
}

/// Refuses an object that is not the one of the path.
fn check_name(object: &Value, name: &str) -> Result<(), ApiError> {
    let given = meta::name(object);
    if given.is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Refuses to apply what is of another type than the path.
fn check_applied_type(served: &Served, config: &Value) -> Result<(), ApiError> {
    let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or_default();
    let (given, kind) = (text("apiVersion"), text("kind"));
    if given == served.api_version() && kind == served.kind {
        return Ok(());
    }
    // What is no version of a group says nothing at all.
    let kind = if given.matches('/').count() > 1 { "" } else { kind };
    let (group, version) = crate::registry::split_api_version(if kind.is_empty() { "" } else { given });
    Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
}

/// What follows "X in version Y cannot be handled as a Z: ".
fn why_unreadable(problem: &str) -> &str {
    let rest = problem.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
    rest.map_or(problem, |(_, why)| why)
}

/// An applied object that fits its type and yet cannot be read.
fn unconvertible(served: &Served, config: &Value, problem: &str) -> ApiError {
    let why = why_unreadable(problem);
    let (namespace, name) = (meta::namespace(config), meta::name(config));
    let of = format!("{}/{}, Kind={}", served.group, served.version, served.kind);
    ApiError::plain(format!(
        "failed to convert new object ({namespace}/{name}; {of}) to proper version: unable to convert unstructured object to {of}: error decoding from json: {why}"
    ))
}

/// Refuses a patch of a type that the kind does not take.
pub(crate) fn check_patch_type(media: &str, served: &Served) -> Result<(), ApiError> {
    match (media, &served.source) {
        ("application/strategic-merge-patch+json", Source::Custom(_)) => {
            Err(ApiError::unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ))
        }
        (
            "application/json-patch+json"
            | "application/merge-patch+json"
            | "application/strategic-merge-patch+json"
            | "application/apply-patch+yaml",
            _,
        ) => Ok(()),
        _ => Err(ApiError::unsupported_patch_type()),
    }
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
                | ("coordination.k8s.io", _)
                | ("admissionregistration.k8s.io", _)
                | ("apiregistration.k8s.io", _)
                | ("certificates.k8s.io", "clustertrustbundles" | "podcertificaterequests")
                | ("node.k8s.io", "runtimeclasses")
                | ("policy", _)
                | (
                    "storage.k8s.io",
                    "csidrivers" | "csinodes" | "csistoragecapacities" | "volumeattachments"
                )
        ),
    }
}

/// Kinds that a PUT creates when they are not there.
fn allows_create_on_update(served: &Served) -> bool {
    matches!(
        (served.group.as_str(), served.plural.as_str()),
        ("", "endpoints" | "events" | "limitranges" | "services")
            | ("coordination.k8s.io", _)
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

/// Few ways to get a patch wrong have a code of their own on the real server.
fn strategic_error(error: k8s_merge::PatchError) -> ApiError {
    use k8s_merge::PatchError;
    match error {
        PatchError::RetainKeys | PatchError::SetElementOrder | PatchError::PrimitiveList => {
            ApiError::bad_request(error.to_string())
        }
        PatchError::ListOfLists => ApiError::unprocessable(),
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
    Json(Vec<Map<String, Value>>),
    Merge(Value),
    Strategic(Value),
}

impl Patch {
    fn parse(media: &str, body: &[u8]) -> Result<Patch, ApiError> {
        let object = || -> Result<Value, ApiError> {
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
            "application/json-patch+json" => {
                let bad = || {
                    ApiError::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                        json_kind(body)
                    ))
                };
                // What is no operation is found out when it is tried.
                serde_json::from_slice(body).map(Patch::Json).map_err(|_| bad())
            }
            "application/merge-patch+json" => Ok(Patch::Merge(object()?)),
            _ => Ok(Patch::Strategic(object()?)),
        }
    }

    /// What becomes of an object.
    fn apply(&self, mut object: Value, served: &Served) -> Result<Value, ApiError> {
        match self {
            Patch::Json(patch) => {
                k8s_merge::json_patch(&mut object, patch).map_err(|_| ApiError::unprocessable())?;
                Ok(object)
            }
            Patch::Merge(patch) => {
                k8s_merge::merge_patch(&mut object, patch);
                Ok(object)
            }
            Patch::Strategic(patch) => {
                k8s_merge::strategic_merged(object, patch, &*served.schema).map_err(strategic_error)
            }
        }
    }

    /// What it is about, if it can change nothing but bookkeeping.
    fn reach(&self, part: Part, served: &Served) -> Option<Bookkeeping> {
        let (Patch::Merge(patch) | Patch::Strategic(patch)) = self else { return None };
        let all = |v: Option<&'_ Value>, known: fn(&str) -> bool| match v {
            None => true,
            Some(Value::Object(members)) => members.keys().all(|name| known(name)),
            Some(_) => false,
        };
        let (status, metadata) = (patch.get("status"), patch.get("metadata"));
        let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
        let is_labelled =
            annotations.is_some() || metadata.is_some_and(|metadata| metadata.get("labels").is_some());
        let (fits, what, known): (bool, _, fn(&str) -> bool) = match part {
            // Whether a node may be nominated depends on the spec.
            Part::Status => (
                status.is_some_and(|s| s.is_object() && s.get("nominatedNodeName").is_none()),
                Bookkeeping::Status,
                |name| matches!(name, "name" | "namespace" | "uid" | "resourceVersion"),
            ),
            // A Job without labels has those of its template. Annotations of Kubernetes may have to do with the spec.
            Part::Main if is_labelled => (
                status.is_none()
                    && served.is("", "pods")
                    && all(annotations, |key| !key.contains("kubernetes.io/")),
                Bookkeeping::Labels,
                |name| matches!(name, "labels" | "annotations") || is_about_owners(name),
            ),
            Part::Main => (status.is_none(), Bookkeeping::Owners, is_about_owners),
            _ => return None,
        };
        let only = all(Some(patch), |name| matches!(name, "apiVersion" | "kind" | "metadata" | "status"));
        (fits && only && all(metadata, known)).then_some(what)
    }
}

/// Whether a member of metadata in a patch is about finalizers and owners, or says which object is meant.
fn is_about_owners(name: &str) -> bool {
    let list = name.strip_prefix("$setElementOrder/").unwrap_or(name);
    let list = list.strip_prefix("$deleteFromPrimitiveList/").unwrap_or(list);
    matches!(list, "finalizers" | "ownerReferences" | "uid" | "resourceVersion" | "name" | "namespace")
}
