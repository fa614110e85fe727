//! All roles and bindings, arranged by whom they are about. In: roles and bindings as they come, change and go. Out: answers.
//!
//! Pure. A question costs what is bound to its user and groups, however many roles and bindings there are. Invariant: changes one
//! by one leave what building from the final objects gives.

use super::rule::Rule;
use super::{Attributes, Decision, User, quoted, service_account};
use crate::meta;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Namespace and name; the namespace is empty for what is of the whole cluster.
type Key = (Arc<str>, Arc<str>);

/// Whom a binding is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A user by name.
    User(String),
    /// A group by name.
    Group(String),
    /// A service account by namespace and name.
    Account(String, String),
}

impl Subject {
    fn read(subject: &Value, namespace: &str) -> Option<Subject> {
        let name = subject["name"].as_str()?.to_string();
        match subject["kind"].as_str()? {
            "User" => Some(Subject::User(name)),
            "Group" => Some(Subject::Group(name)),
            "ServiceAccount" => {
                let own = subject["namespace"].as_str().filter(|ns| !ns.is_empty()).unwrap_or(namespace);
                (!own.is_empty()).then(|| Subject::Account(own.into(), name))
            }
            _ => None,
        }
    }

    fn of(user: &User) -> Vec<Subject> {
        let mut all = vec![Subject::User(user.name.clone())];
        all.extend(service_account(&user.name).map(|(ns, n)| Subject::Account(ns.into(), n.into())));
        all.extend(user.groups.iter().cloned().map(Subject::Group));
        all
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::User(name) => write!(f, "User {}", quoted(name)),
            Subject::Group(name) => write!(f, "Group {}", quoted(name)),
            Subject::Account(namespace, name) => {
                write!(f, "ServiceAccount {}", quoted(&format!("{name}/{namespace}")))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Binding {
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// Which role a binding or a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// Namespace of a Role; empty for a ClusterRole.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl RoleRef {
    /// Reads a `roleRef`; `namespace` is the binding's.
    pub fn read(binding: &Value, namespace: &str) -> RoleRef {
        let role = &binding["roleRef"];
        let own = if role["kind"] == "Role" { namespace } else { "" };
        RoleRef { namespace: own.into(), name: role["name"].as_str().unwrap_or_default().into() }
    }

    /// `Role` or `ClusterRole`.
    pub fn kind(&self) -> &'static str {
        if self.namespace.is_empty() { "ClusterRole" } else { "Role" }
    }

    fn absent(&self) -> String {
        format!("{}.rbac.authorization.k8s.io {} not found", self.kind().to_lowercase(), quoted(&self.name))
    }
}

/// Every role and binding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    roles: HashMap<Key, Arc<[Rule]>>,
    bindings: HashMap<Key, Binding>,
    /// Names of the bindings in each namespace that are about somebody.
    by_subject: HashMap<Subject, BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>,
}

fn key(object: &Value) -> Key {
    (meta::namespace(object).into(), meta::name(object).into())
}

impl Index {
    /// Takes up a Role or ClusterRole, new or changed.
    pub fn put_role(&mut self, role: &Value) {
        self.roles.insert(key(role), Rule::read_all(role).into());
    }

    /// Forgets one.
    pub fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.remove(&(namespace.into(), name.into()));
    }

    /// Takes up a RoleBinding or ClusterRoleBinding, new or changed.
    pub fn put_binding(&mut self, binding: &Value) {
        let (namespace, name) = key(binding);
        self.remove_binding(&namespace, &name);
        let subjects: Vec<Subject> = binding["subjects"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|s| Subject::read(s, &namespace))
            .collect();
        for subject in &subjects {
            let places = self.by_subject.entry(subject.clone()).or_default();
            places.entry(namespace.clone()).or_default().insert(name.clone());
        }
        let role = RoleRef::read(binding, &namespace);
        self.bindings.insert((namespace, name), Binding { role, subjects });
    }

    /// Forgets one.
    pub fn remove_binding(&mut self, namespace: &str, name: &str) {
        let Some(old) = self.bindings.remove(&(namespace.into(), name.into())) else { return };
        for subject in old.subjects {
            let Some(places) = self.by_subject.get_mut(&subject) else { continue };
            if let Some(names) = places.get_mut(namespace) {
                names.remove(name);
                if names.is_empty() {
                    places.remove(namespace);
                }
            }
            if places.is_empty() {
                self.by_subject.remove(&subject);
            }
        }
    }

    /// The rules of a role.
    pub fn role(&self, role: &RoleRef) -> Option<&[Rule]> {
        self.roles.get(&(role.namespace.clone(), role.name.clone())).map(|rules| &**rules)
    }

    /// Whether somebody may do something, and by what.
    pub fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        if user.is_master() {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut absent = Vec::new();
        let mut found = None;
        self.visit(user, &asked.namespace, &mut |bound| {
            match bound.rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(asked)) => found = Some(bound.reason()),
                Some(_) => {}
                None => absent.push(bound.role.absent()),
            }
            found.is_some()
        });
        match found {
            Some(reason) => Decision { allowed: true, reason },
            None if absent.is_empty() => Decision { allowed: false, reason: String::new() },
            None => Decision { allowed: false, reason: format!("RBAC: {}", aggregate(&absent)) },
        }
    }

    /// All rules that apply to somebody in a namespace, and what is wrong with the bindings that bring them.
    pub fn rules(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let (mut rules, mut absent) = (Vec::new(), Vec::new());
        self.visit(user, namespace, &mut |bound| {
            match bound.rules {
                Some(found) => rules.extend_from_slice(found),
                None => absent.push(bound.role.absent()),
            }
            false
        });
        (rules, (!absent.is_empty()).then(|| aggregate(&absent)))
    }

    /// Shows what is bound to somebody, cluster first, each place by name, until `done`.
    fn visit(&self, user: &User, namespace: &str, done: &mut dyn FnMut(Bound<'_>) -> bool) {
        let subjects = Subject::of(user);
        let known: Vec<_> = subjects.iter().filter_map(|s| self.by_subject.get(s)).collect();
        let places: &[&str] = if namespace.is_empty() { &[""] } else { &["", namespace] };
        for place in places {
            let mut names: Vec<&Arc<str>> = known.iter().filter_map(|p| p.get(*place)).flatten().collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let Some((key, binding)) = self.bindings.get_key_value(&((*place).into(), name.clone()))
                else {
                    continue;
                };
                let Some(subject) = binding.subjects.iter().find(|s| subjects.contains(s)) else { continue };
                let rules = self.role(&binding.role);
                if done(Bound { key, role: &binding.role, subject, rules }) {
                    return;
                }
            }
        }
    }
}

/// A binding that is about somebody.
struct Bound<'a> {
    key: &'a Key,
    role: &'a RoleRef,
    subject: &'a Subject,
    rules: Option<&'a [Rule]>,
}

impl Bound<'_> {
    fn reason(&self) -> String {
        let (namespace, name) = self.key;
        let binding = if namespace.is_empty() {
            format!("ClusterRoleBinding {}", quoted(name))
        } else {
            format!("RoleBinding {}", quoted(&format!("{name}/{namespace}")))
        };
        let role = format!("{} {}", self.role.kind(), quoted(&self.role.name));
        format!("RBAC: allowed by {binding} of {role} to {}", self.subject)
    }
}

/// Several problems as one text, each once.
fn aggregate(problems: &[String]) -> String {
    let mut once: Vec<&str> = Vec::new();
    for problem in problems {
        if !once.contains(&problem.as_str()) {
            once.push(problem);
        }
    }
    match &once[..] {
        [one] => (*one).to_string(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// What an aggregated ClusterRole should hold: the rules of all others that its selectors match, each once, by name of role.
pub fn aggregated(role: &Value, all: &[Value]) -> Option<Vec<Value>> {
    let selectors: Vec<_> = meta::at(role, "aggregationRule.clusterRoleSelectors")?
        .as_array()?
        .iter()
        .filter_map(|s| crate::selector::Labels::from_object(s).ok())
        .collect();
    let mut rules: Vec<Value> = Vec::new();
    for other in all.iter().filter(|o| meta::name(o) != meta::name(role)) {
        let label = |name: &str| other["metadata"]["labels"][name].as_str();
        if !selectors.iter().any(|s| s.matches(label)) {
            continue;
        }
        for rule in other["rules"].as_array().into_iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn role(namespace: &str, name: &str, resource: &str, verbs: &[&str]) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs}]})
    }

    fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: &[(&str, &str)]) -> Value {
        let subject = |(kind, name): &(&str, &str)| match name.split_once('/') {
            Some((ns, name)) => json!({"kind": kind, "name": name, "namespace": ns}),
            None => json!({"kind": kind, "name": name}),
        };
        json!({"metadata": {"namespace": namespace, "name": name},
            "roleRef": {"kind": role.0, "name": role.1}, "subjects": subjects.iter().map(subject).collect::<Vec<_>>()})
    }

    fn sample() -> Index {
        let mut index = Index::default();
        index.put_role(&role("a", "dev", "pods", &["get", "list"]));
        index.put_role(&role("", "viewer", "configmaps", &["get"]));
        index.put_role(&role("b", "dev", "secrets", &["get"]));
        index.put_binding(&binding("a", "dev", ("Role", "dev"), &[("User", "alice"), ("Group", "team")]));
        index.put_binding(&binding("b", "view", ("ClusterRole", "viewer"), &[("ServiceAccount", "a/robot")]));
        index.put_binding(&binding("a", "own", ("ClusterRole", "viewer"), &[("ServiceAccount", "robot")]));
        index.put_binding(&binding("", "all", ("ClusterRole", "viewer"), &[("Group", "auditors")]));
        index.put_binding(&binding("a", "dangling", ("Role", "gone"), &[("User", "bob")]));
        index
    }

    #[track_caller]
    fn check(user: &User, line: &str, expected: Result<&str, &str>) {
        let (method, uri) = line.split_once(' ').unwrap();
        let asked = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let decision = sample().decide(user, &asked);
        let wanted = match expected {
            Ok(reason) => Decision { allowed: true, reason: reason.into() },
            Err(reason) => Decision { allowed: false, reason: reason.into() },
        };
        assert_eq!(decision, wanted, "{} {line}", user.name);
    }

    #[test]
    fn who_may_do_what() {
        let named = |name: &str| User::known(name, []);
        let alice = named("alice");
        check(
            &alice,
            "GET /api/v1/namespaces/a/pods/x",
            Ok(r#"RBAC: allowed by RoleBinding "dev/a" of Role "dev" to User "alice""#),
        );
        check(&alice, "GET /api/v1/namespaces/b/pods/x", Err(""));
        check(&alice, "GET /api/v1/pods", Err(""));
        check(&alice, "GET /api/v1/namespaces/a/secrets/x", Err(""));
        let member = User::known("zoe", ["team".to_string()]);
        check(
            &member,
            "GET /api/v1/namespaces/a/pods",
            Ok(r#"RBAC: allowed by RoleBinding "dev/a" of Role "dev" to Group "team""#),
        );
        let auditor = User::known("zoe", ["auditors".to_string()]);
        check(
            &auditor,
            "GET /api/v1/namespaces/q/configmaps/c",
            Ok(r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "viewer" to Group "auditors""#),
        );
        let robot = User::service_account("a", "robot");
        check(
            &robot,
            "GET /api/v1/namespaces/b/configmaps/c",
            Ok(
                r#"RBAC: allowed by RoleBinding "view/b" of ClusterRole "viewer" to ServiceAccount "robot/a""#,
            ),
        );
        check(
            &robot,
            "GET /api/v1/namespaces/a/configmaps/c",
            Ok(r#"RBAC: allowed by RoleBinding "own/a" of ClusterRole "viewer" to ServiceAccount "robot/a""#),
        );
        // A role that is bound in a namespace says nothing about another.
        check(&robot, "GET /api/v1/namespaces/c/configmaps/c", Err(""));
        check(&User::service_account("b", "robot"), "GET /api/v1/namespaces/b/configmaps/c", Err(""));
        check(
            &named("bob"),
            "GET /api/v1/namespaces/a/pods",
            Err(r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#),
        );
        check(&named("bob"), "GET /api/v1/namespaces/b/pods", Err(""));
        // A user called like a group, or like an account, is neither.
        check(&named("team"), "GET /api/v1/namespaces/a/pods", Err(""));
        check(&User::master("root"), "DELETE /api/v1/nodes/n", Ok(""));
        check(&User::anonymous(), "GET /api/v1/namespaces/a/pods", Err(""));
    }

    #[test]
    fn aggregation_gathers_by_label() {
        let part = |name: &str, label: &str, verb: &str| json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": [{"verbs": [verb]}]});
        let mut all = vec![
            part("a", "to-x", "get"),
            part("b", "to-x", "list"),
            part("c", "to-y", "watch"),
            part("d", "to-x", "get"),
        ];
        let sum = json!({"metadata": {"name": "sum", "labels": {"to-x": "true"}}, "rules": [{"verbs": ["old"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-x": "true"}}]}});
        all.push(sum.clone());
        assert_eq!(aggregated(&sum, &all), Some(vec![json!({"verbs": ["get"]}), json!({"verbs": ["list"]})]));
        assert_eq!(aggregated(&all[0], &all), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Role(u8, u8, u8),
        NoRole(u8, u8),
        Bind(u8, u8, u8, Vec<u8>),
        NoBind(u8, u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3u8, 0..3u8, 0..3u8).prop_map(|(a, b, c)| Step::Role(a, b, c)),
            (0..3u8, 0..3u8).prop_map(|(a, b)| Step::NoRole(a, b)),
            (0..3u8, 0..3u8, 0..3u8, prop::collection::vec(0..4u8, 0..3))
                .prop_map(|(a, b, c, d)| Step::Bind(a, b, c, d)),
            (0..3u8, 0..3u8).prop_map(|(a, b)| Step::NoBind(a, b)),
        ]
    }

    proptest! {
        #[test]
        fn step_by_step_is_as_built_anew(steps in prop::collection::vec(step(), 0..30)) {
            let place = |n: &u8| ["", "a", "b"][usize::from(*n)];
            let mut index = Index::default();
            let mut objects: BTreeMap<(bool, String, String), Value> = BTreeMap::new();
            for step in &steps {
                match step {
                    Step::Role(ns, n, verb) => {
                        let object = role(place(ns), &n.to_string(), "pods", &[["get", "list", "*"][usize::from(*verb)]]);
                        index.put_role(&object);
                        objects.insert((false, place(ns).into(), n.to_string()), object);
                    }
                    Step::NoRole(ns, n) => {
                        index.remove_role(place(ns), &n.to_string());
                        objects.remove(&(false, place(ns).into(), n.to_string()));
                    }
                    Step::Bind(ns, n, to, who) => {
                        let subjects: Vec<(&str, &str)> = who.iter()
                            .map(|w| [("User", "u"), ("Group", "g"), ("ServiceAccount", "a/s"), ("User", "v")][usize::from(*w)]).collect();
                        let object = binding(place(ns), &n.to_string(), (if to % 2 == 0 { "Role" } else { "ClusterRole" }, &to.to_string()), &subjects);
                        index.put_binding(&object);
                        objects.insert((true, place(ns).into(), n.to_string()), object);
                    }
                    Step::NoBind(ns, n) => {
                        index.remove_binding(place(ns), &n.to_string());
                        objects.remove(&(true, place(ns).into(), n.to_string()));
                    }
                }
            }
            let mut anew = Index::default();
            for ((is_binding, ..), object) in &objects {
                if *is_binding { anew.put_binding(object) } else { anew.put_role(object) }
            }
            prop_assert_eq!(index, anew);
        }
    }
}
