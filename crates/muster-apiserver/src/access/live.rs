//! RBAC over the stored roles. In: requests and writes. Out: who asks, whether they may, and a refusal if not.
//!
//! The index follows the four kinds of the RBAC group: a look at four counters tells whether anything changed, and what changed is
//! taken up before the next answer. So a right that was given or taken counts from the next request on.

use super::index::{Index, RoleRef, aggregated};
use super::rule::{self, Rule, quoted_list};
use super::token::{AUDIENCE, Claims, Signer};
use super::{
    ANONYMOUS, AUTHENTICATED, Attributes, Config, Decision, Peer, UNAUTHENTICATED, User, quoted,
    service_account,
};
use crate::admission::{Operation, Review};
use crate::meta;
use crate::server::ApiServer;
use crate::status::{ApiError, GroupResource};
use crate::store::{Expect, Key, Range, Revision, Store, Table};
use crate::strategy::Part;
use crate::write::Context;
use serde_json::{Value, json};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

const GROUP: &str = "rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// The tables that the index is made of, and whether they hold bindings.
const TABLES: [(&str, bool); 4] = [
    (CLUSTER_ROLES, false),
    ("roles.rbac.authorization.k8s.io", false),
    ("clusterrolebindings.rbac.authorization.k8s.io", true),
    ("rolebindings.rbac.authorization.k8s.io", true),
];

/// How often aggregation is tried until nothing changes: a role of roles of roles is settled after three.
const MAX_AGGREGATIONS: usize = 8;

/// Enforced access.
pub(crate) struct Access {
    config: Config,
    admin: Arc<User>,
    pub(super) signer: Signer,
    live: RwLock<Option<Live>>,
}

/// Who asks: as they showed themselves, and as whom they act.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// By token or certificate.
    pub shown: Arc<User>,
    /// The same, or whom they impersonate.
    pub user: Arc<User>,
}

struct Live {
    index: Index,
    feeds: Vec<Feed>,
}

struct Feed {
    table: Table,
    is_binding: bool,
    seen: Revision,
    changed: watch::Receiver<Revision>,
}

impl Live {
    fn new(store: &dyn Store) -> Live {
        let feeds = TABLES
            .iter()
            .map(|(table, is_binding)| {
                let table: Table = (*table).into();
                let mut changed = store.subscribe(&table);
                changed.mark_changed();
                Feed { table, is_binding: *is_binding, seen: 0, changed }
            })
            .collect();
        let mut live = Live { index: Index::default(), feeds };
        live.rebuild(store);
        live
    }

    fn is_current(&self) -> bool {
        self.feeds.iter().all(|f| matches!(f.changed.has_changed(), Ok(false)))
    }

    /// Takes up what changed; from scratch where the history does not reach back.
    fn catch_up(&mut self, store: &dyn Store) {
        for feed in &mut self.feeds {
            feed.changed.borrow_and_update();
            let Ok((changes, revision)) = store.changes(&feed.table, feed.seen) else {
                return self.rebuild(store);
            };
            feed.seen = revision;
            for change in changes {
                let key = &change.object.key;
                match (change.deleted, feed.is_binding) {
                    (true, false) => self.index.remove_role(&key.namespace, &key.name),
                    (true, true) => self.index.remove_binding(&key.namespace, &key.name),
                    (false, is_binding) => take_up(&mut self.index, is_binding, &change.object.text),
                }
            }
        }
    }

    fn rebuild(&mut self, store: &dyn Store) {
        self.index = Index::default();
        for feed in &mut self.feeds {
            feed.changed.borrow_and_update();
            let Ok(page) = store.list(&feed.table, &Range::default(), &mut |_| true) else { continue };
            feed.seen = page.revision;
            for stored in &page.items {
                take_up(&mut self.index, feed.is_binding, &stored.text);
            }
        }
    }
}

fn take_up(index: &mut Index, is_binding: bool, text: &str) {
    let Ok(object) = serde_json::from_str::<Value>(text) else { return };
    if is_binding {
        index.put_binding(&object);
    } else {
        index.put_role(&object);
    }
}

impl Access {
    pub fn new(config: Config, admin: &str) -> Access {
        let admin = Arc::new(User::master(admin));
        let signer = match config.signing_key.as_str() {
            "" => Signer::new(),
            key => Signer::with(key),
        };
        Access { config, admin, signer, live: RwLock::new(None) }
    }

    /// Asks the index, as it is now.
    pub(super) fn ask<T>(&self, store: &dyn Store, question: impl FnOnce(&Index) -> T) -> T {
        {
            let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(live) = live.as_ref().filter(|l| l.is_current()) {
                return question(&live.index);
            }
        }
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let live = live.get_or_insert_with(|| Live::new(store));
        live.catch_up(store);
        question(&live.index)
    }

    fn is_admin(&self, token: &str) -> bool {
        let admin = &self.config.admin_token;
        !admin.is_empty() && crate::http::is_same(token, admin)
    }
}

fn header<'a>(head: &'a http::request::Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name).and_then(|v| v.to_str().ok())
}

impl ApiServer {
    /// Who sent a request, by token or certificate.
    fn who(&self, access: &Access, head: &http::request::Parts) -> Result<Arc<User>, ApiError> {
        let shown = header(head, "authorization").unwrap_or_default();
        if let Some(token) = shown.strip_prefix("Bearer ").or_else(|| shown.strip_prefix("bearer ")) {
            let token = token.trim();
            if !token.is_empty() {
                return self.whose(access, token).map(|(user, _)| user).ok_or_else(ApiError::unauthorized);
            }
        }
        if let Some(user) = head.extensions.get::<Peer>().and_then(|p| p.user.clone()) {
            return Ok(user);
        }
        Ok(Arc::new(User::anonymous()))
    }

    /// Whose token it is, and for whom it was made.
    pub(super) fn whose(&self, access: &Access, token: &str) -> Option<(Arc<User>, Vec<String>)> {
        let ours = || vec![AUDIENCE.to_string()];
        if access.is_admin(token) {
            return Some((access.admin.clone(), ours()));
        }
        if let Some(user) = access.config.tokens.find(token) {
            return Some((user.clone(), ours()));
        }
        let claims = access.signer.read(token, self.clock().now().as_second())?;
        if !claims.audiences.iter().any(|a| a == AUDIENCE) {
            return None;
        }
        // A token ends with the account that it is of, and with the object that it is bound to.
        let is_alive = |table: &str, namespace: &str, name: &str, uid: &str| {
            let found = self.store().get(table, &Key::new(namespace, name));
            found.is_some_and(|stored| &*stored.facts.uid == uid)
        };
        if !is_alive("serviceaccounts", &claims.namespace, &claims.account, &claims.uid) {
            return None;
        }
        if let Some((kind, name, uid)) = &claims.bound {
            let namespace = if kind == "node" { "" } else { &claims.namespace };
            if !is_alive(&format!("{kind}s"), namespace, name, uid) {
                return None;
            }
        }
        let user = Arc::new(claims.user());
        Some((user, claims.audiences))
    }

    /// Who asks, and as whom.
    pub(crate) fn identify(&self, access: &Access, head: &http::request::Parts) -> Result<Caller, ApiError> {
        let shown = self.who(access, head)?;
        let user = match impersonated(head)? {
            None => shown.clone(),
            Some((wanted, questions)) => {
                for asked in questions {
                    self.require(access, &shown, &asked)?;
                }
                Arc::new(wanted)
            }
        };
        Ok(Caller { shown, user })
    }

    /// Whether somebody may do something.
    pub(crate) fn decide(&self, access: &Access, user: &User, asked: &Attributes) -> Decision {
        access.ask(self.store(), |index| index.decide(user, asked))
    }

    fn require(&self, access: &Access, user: &User, asked: &Attributes) -> Result<Decision, ApiError> {
        let decision = self.decide(access, user, asked);
        if decision.allowed { Ok(decision) } else { Err(asked.refusal(&user.name, &decision.reason)) }
    }

    /// Refuses a request that needs one more right than its own, such as an update that creates.
    pub(crate) fn require_verb(&self, cx: &Context, verb: &str, name: &str) -> Result<(), ApiError> {
        let (Some(access), Some(user)) = (&self.inner.access, &cx.user) else { return Ok(()) };
        let asked = Attributes {
            verb: verb.into(),
            group: cx.served.group.clone(),
            version: cx.served.version.clone(),
            resource: cx.served.plural.clone(),
            namespace: cx.namespace.clone().unwrap_or_default(),
            name: name.into(),
            ..Attributes::default()
        };
        self.require(access, user, &asked).map(|_| ())
    }

    /// A token of a service account, for a TokenRequest that has been read.
    pub(crate) fn sign_token(
        &self,
        access: &Access,
        account: &Value,
        request: &Value,
        (issued, expires): (i64, i64),
    ) -> Result<String, ApiError> {
        let namespace = meta::namespace(account);
        let reference = &request["spec"]["boundObjectRef"];
        let bound = match reference["kind"].as_str() {
            None => None,
            Some(kind @ ("Pod" | "Secret" | "Node")) => {
                let name = reference["name"].as_str().unwrap_or_default();
                let table = format!("{}s", kind.to_lowercase());
                let place = if kind == "Node" { "" } else { namespace };
                let gr = GroupResource { group: String::new(), resource: table.clone() };
                let stored = self.store().get(&table, &Key::new(place, name));
                let stored = stored.ok_or_else(|| ApiError::not_found(&gr, name))?;
                let wanted = reference["uid"].as_str().unwrap_or_default();
                if !wanted.is_empty() && wanted != &*stored.facts.uid {
                    let why = format!(
                        "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
                    );
                    return Err(ApiError::conflict(&gr, name, &why));
                }
                Some((kind.to_lowercase(), name.to_string(), stored.facts.uid.to_string()))
            }
            Some(kind) => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount to a {kind}"
                )));
            }
        };
        let audiences = match meta::strings(request["spec"].get("audiences")) {
            none if none.is_empty() => vec![AUDIENCE.to_string()],
            some => some,
        };
        Ok(access.signer.sign(&Claims {
            namespace: namespace.into(),
            account: meta::name(account).into(),
            uid: meta::uid(account).into(),
            bound,
            audiences,
            issued,
            expires,
            id: self.new_uid().to_string(),
        }))
    }

    /// Refuses to let somebody write a role or a binding that hands out more than they have.
    pub(crate) fn check_escalation(&self, review: &Review, object: &Value) -> Result<(), ApiError> {
        let (Some(access), Some(user)) = (&self.inner.access, &review.user) else { return Ok(()) };
        if review.served.group != GROUP || review.operation == Operation::Delete || user.is_master() {
            return Ok(());
        }
        if review.old.as_deref().is_some_and(|old| is_bookkeeping(old, object)) {
            return Ok(());
        }
        let ask = |verb: &str, resource: &str, namespace: &str, name: &str| {
            let asked = Attributes {
                verb: verb.into(),
                group: GROUP.into(),
                resource: resource.into(),
                namespace: namespace.into(),
                name: name.into(),
                ..Attributes::default()
            };
            self.decide(access, user, &asked).allowed
        };
        let namespace = review.namespace.as_str();
        let wanted = match review.served.plural.as_str() {
            "roles" | "clusterroles" => {
                if ask("escalate", &review.served.plural, namespace, &review.name) {
                    return Ok(());
                }
                let gathers = |o: &Value| o.get("aggregationRule").is_some_and(|a| !a.is_null());
                if gathers(object) || review.old.as_deref().is_some_and(gathers) {
                    let (held, _) = access.ask(self.store(), |index| index.rules(user, ""));
                    if !rule::missing(&held, &Rule::full()).is_empty() {
                        let why = "must have cluster-admin privileges to use the aggregationRule";
                        return Err(ApiError::forbidden(&review.served.group_resource(), &review.name, why));
                    }
                }
                Rule::read_all(object)
            }
            _ => {
                let role = RoleRef::read(object, namespace);
                let plural = if role.kind() == "Role" { "roles" } else { "clusterroles" };
                if ask("bind", plural, namespace, &role.name) {
                    return Ok(());
                }
                let found = access.ask(self.store(), |index| index.role(&role).map(<[Rule]>::to_vec));
                let gr = GroupResource { group: GROUP.into(), resource: plural.into() };
                found.ok_or_else(|| ApiError::not_found(&gr, &role.name))?
            }
        };
        let (held, problem) = access.ask(self.store(), |index| index.rules(user, namespace));
        let missing = rule::missing(&held, &wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quoted(&user.name),
            quoted_list(&user.groups),
            missing.join("\n")
        );
        if let Some(problem) = problem {
            why = format!("{why}; resolution errors: [{problem}]");
        }
        Err(ApiError::forbidden(&review.served.group_resource(), &review.name, why))
    }

    /// Writes into every aggregated ClusterRole the rules that it gathers.
    pub(crate) fn aggregate_roles(&self) {
        let Some(served) = self.kind_of_table(CLUSTER_ROLES) else { return };
        for _ in 0..MAX_AGGREGATIONS {
            let all = self.all(CLUSTER_ROLES);
            let mut changed = false;
            for role in &all {
                let Some(rules) = aggregated(role, &all) else { continue };
                let is_same = match &role["rules"] {
                    Value::Array(old) => *old == rules,
                    _ => rules.is_empty(),
                };
                let Ok(revision) = meta::text(role, "resourceVersion").parse() else { continue };
                if is_same {
                    continue;
                }
                let mut new = role.clone();
                new["rules"] = rules.into();
                let new = self.manage_as(
                    "clusterrole-aggregation-controller",
                    &served,
                    Some(role),
                    new,
                    Part::Main,
                );
                changed = true;
                // Whoever moved it meanwhile does this, too.
                let _ = self.commit(&served, &Key::new("", meta::name(role)), Expect::At(revision), &new);
            }
            if !changed {
                return;
            }
        }
    }

    /// Creates the roles and bindings of a new cluster.
    pub(crate) fn seed_roles(&self) {
        for role in super::roles::roles() {
            crate::bootstrap::put(self, CLUSTER_ROLES, role);
        }
        for binding in super::roles::bindings() {
            crate::bootstrap::put(self, "clusterrolebindings.rbac.authorization.k8s.io", binding);
        }
        self.aggregate_roles();
    }
}

/// Whether two states differ in nothing but what deletion needs.
fn is_bookkeeping(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        for field in ["finalizers", "ownerReferences", "managedFields", "resourceVersion"] {
            meta::edit(&mut object).remove(field);
        }
        object
    };
    bare(old) == bare(new)
}

/// Whom a request wants to act as, and what its sender must be allowed for that.
fn impersonated(head: &http::request::Parts) -> Result<Option<(User, Vec<Attributes>)>, ApiError> {
    const EXTRA: &str = "impersonate-extra-";
    let all = |name: &str| -> Vec<String> {
        head.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).map(str::to_string).collect()
    };
    let name = header(head, "impersonate-user").unwrap_or_default().to_string();
    let mut groups = all("impersonate-group");
    let uid = header(head, "impersonate-uid").unwrap_or_default().to_string();
    let mut extra = std::collections::BTreeMap::new();
    for key in head.headers.keys().filter_map(|k| k.as_str().strip_prefix(EXTRA)) {
        let plain = percent_encoding::percent_decode_str(key).decode_utf8_lossy().to_lowercase();
        extra.insert(plain, all(&format!("{EXTRA}{key}")));
    }
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        let text = format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:[]string{{{}}}, Extra:map[string][]string(nil)}} without impersonating a user name",
            quoted(&uid),
            groups.iter().map(|g| quoted(g)).collect::<Vec<_>>().join(", ")
        );
        return Err(ApiError::bad_request(text));
    }
    let question = |group: &str, resource: &str, sub: &str, namespace: &str, name: &str| Attributes {
        verb: "impersonate".into(),
        group: group.into(),
        resource: resource.into(),
        subresource: sub.into(),
        namespace: namespace.into(),
        name: name.into(),
        ..Attributes::default()
    };
    let mut questions = Vec::new();
    match service_account(&name) {
        Some((namespace, account)) => questions.push(question("", "serviceaccounts", "", namespace, account)),
        None => questions.push(question("", "users", "", "", &name)),
    }
    questions.extend(groups.iter().map(|g| question("", "groups", "", "", g)));
    if !uid.is_empty() {
        questions.push(question("authentication.k8s.io", "uids", "", "", &uid));
    }
    for (key, values) in &extra {
        questions.extend(values.iter().map(|v| question("authentication.k8s.io", "userextras", key, "", v)));
    }
    if groups.is_empty()
        && let Some((namespace, account)) = service_account(&name)
    {
        groups = User::service_account(namespace, account).groups;
    }
    let everybody = if name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !groups.iter().any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED) {
        groups.push(everybody.into());
    }
    Ok(Some((User { name, uid, groups, extra }, questions)))
}

/// `userInfo` of a review: whoever asks, or the administrator.
pub(crate) fn info(user: Option<&Arc<User>>, admin: &str) -> Value {
    match user {
        Some(user) => user.to_info(),
        None => json!({"username": admin, "groups": ["system:masters", "system:authenticated"]}),
    }
}
