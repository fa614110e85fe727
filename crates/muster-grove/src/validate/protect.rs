//! Who may change what belongs to a set.
//!
//! In: a request about an object that carries our label, and its set. Out: a decision. Must stay true: nothing but our label
//! makes an object ours; an object whose set is gone is anybody's; pods may be deleted by anybody.

use muster_runtime::object::Strings;

use crate::keys;
use crate::object::PodCliqueSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Create,
    Update,
    Delete,
    Connect,
}

pub struct Request<'a> {
    pub verb: Verb,
    pub user: &'a str,
    pub kind: &'a str,
    /// Of the object as it was, on update and delete; of the new one on create.
    pub labels: &'a Strings,
    /// A subresource, such as `scale` or `status`; empty for the object itself.
    pub subresource: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Allow,
    AllowWith(String),
    Deny(String),
}

/// The set that an object belongs to, by its labels.
pub fn set_of<'a>(request: &Request<'a>) -> Option<&'a str> {
    let is_ours = request.labels.get(keys::MANAGED_BY).is_some_and(|by| by == keys::OPERATOR);
    request.labels.get(keys::PART_OF).map(String::as_str).filter(|_| is_ours)
}

/// `users` are the service accounts that may do everything: ours and those that are exempt. `set` is the set that
/// [`set_of`] names, `None` if it does not exist.
pub fn decide(request: &Request<'_>, set: Option<&PodCliqueSet>, users: &[String]) -> Decision {
    if request.verb == Verb::Connect
        || request.labels.get(keys::MANAGED_BY).is_none_or(|by| by != keys::OPERATOR)
    {
        return Decision::Allow;
    }
    let Some(set) = set else {
        let name = request.labels.get(keys::PART_OF).map_or("", String::as_str);
        return Decision::AllowWith(format!("its PodCliqueSet {name:?} does not exist"));
    };
    let is_unprotected = set.metadata.annotation(keys::UNPROTECTED) == Some("true");
    if is_unprotected || users.iter().any(|user| user == request.user) {
        return Decision::Allow;
    }
    if request.verb == Verb::Delete && request.kind == "Pod" {
        return Decision::Allow;
    }
    // Scaling is what users and autoscalers do to cliques and groups; status is what schedulers and kubelets write.
    if matches!(request.subresource, "scale" | "status" | "binding" | "eviction") {
        return Decision::Allow;
    }
    Decision::Deny(format!(
        "{} belongs to PodCliqueSet {}; change that, or annotate it with {}: \"true\"",
        request.kind,
        set.metadata.name,
        keys::UNPROTECTED
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::set;

    /// `verb kind user flags`: `o` not ours, `g` the set is gone, `u` unprotected, `s` scale.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let flags = words.get(3).copied().unwrap_or("");
        let verb = match words[0] {
            "create" => Verb::Create,
            "update" => Verb::Update,
            "delete" => Verb::Delete,
            _ => Verb::Connect,
        };
        let mut labels = Strings::from([(keys::PART_OF.to_owned(), "p".to_owned())]);
        if !flags.contains('o') {
            labels.insert(keys::MANAGED_BY.into(), keys::OPERATOR.into());
        }
        let mut owner = set("p x1; a 1/1");
        if flags.contains('u') {
            owner.metadata.annotations.insert(keys::UNPROTECTED.into(), "true".into());
        }
        let request = Request {
            verb,
            user: words[2],
            kind: words[1],
            labels: &labels,
            subresource: if flags.contains('s') { "scale" } else { "" },
        };
        let decision =
            decide(&request, (!flags.contains('g')).then_some(&owner), &["us".into(), "exempt".into()]);
        let shown = match decision {
            Decision::Allow => "allow",
            Decision::AllowWith(_) => "warn",
            Decision::Deny(_) => "deny",
        };
        assert_eq!(shown, expected, "{text}");
        assert_eq!(set_of(&request).is_some(), !flags.contains('o'));
    }

    #[test]
    fn decisions() {
        for verb in ["create", "update", "delete"] {
            check(&format!("{verb} PodClique us"), "allow");
            check(&format!("{verb} PodClique exempt"), "allow");
            check(&format!("{verb} PodClique eve"), "deny");
            check(&format!("{verb} PodClique eve u"), "allow");
            check(&format!("{verb} PodClique eve g"), "warn");
            check(&format!("{verb} PodClique eve o"), "allow");
        }
        check("connect Pod eve", "allow");
        check("delete Pod eve", "allow");
        check("update Pod eve", "deny");
        check("update PodClique eve s", "allow");
        check("delete Service eve", "deny");
    }
}
