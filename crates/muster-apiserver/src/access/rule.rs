//! One rule of a role: what it allows, and whether some rules cover others. Pure.
//!
//! In: rules as the API has them, and a question. Out: yes or no; and, for somebody who hands out rights, those that they do not
//! have themselves.

use super::{Attributes, quoted};
use crate::meta;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs; `*` is all.
    pub verbs: Vec<String>,
    /// API groups; `*` is all.
    pub groups: Vec<String>,
    /// Resources as `pods`, `pods/log`, `*/scale` or `*`.
    pub resources: Vec<String>,
    /// Names; empty means any.
    pub names: Vec<String>,
    /// Paths; one that ends in `*` is all that begin so.
    pub urls: Vec<String>,
}

impl Rule {
    /// Reads a `PolicyRule`.
    pub fn read(rule: &Value) -> Rule {
        let list = |field: &str| meta::strings(rule.get(field));
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Reads the `rules` of a role.
    pub fn read_all(role: &Value) -> Vec<Rule> {
        role["rules"].as_array().into_iter().flatten().map(Rule::read).collect()
    }

    /// Everything.
    pub fn full() -> [Rule; 2] {
        let all = || vec!["*".to_string()];
        [
            Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), urls: all(), ..Rule::default() },
        ]
    }

    /// Whether it allows what is asked.
    pub fn allows(&self, asked: &Attributes) -> bool {
        if !has(&self.verbs, &asked.verb) {
            return false;
        }
        if !asked.is_resource() {
            return self.urls.iter().any(|url| url_covers(url, &asked.path));
        }
        has(&self.groups, &asked.group)
            && self.resources.iter().any(|r| resource_covers(r, &asked.resource, &asked.subresource))
            && (self.names.is_empty() || self.names.contains(&asked.name))
    }

    /// As `ResourceRule` or `NonResourceRule` of a rules review.
    pub fn to_review(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        for (field, list) in [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ] {
            if !list.is_empty() {
                rule[field] = json!(list);
            }
        }
        rule
    }

    /// As `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn compact(&self) -> String {
        let mut parts = Vec::new();
        for (name, list) in [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                parts.push(format!("{name}:{}", quoted_list(list)));
            }
        }
        format!("{{{}}}", parts.join(", "))
    }

    /// The smallest rules that it is made of: one verb, one resource, at most one name each.
    fn parts(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        let one = |s: &String| vec![s.clone()];
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let plain = Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.names.is_empty() {
                        parts.push(plain);
                    } else {
                        parts.extend(self.names.iter().map(|n| Rule { names: one(n), ..plain.clone() }));
                    }
                }
            }
        }
        for url in &self.urls {
            parts.extend(self.verbs.iter().map(|v| Rule {
                verbs: one(v),
                urls: one(url),
                ..Rule::default()
            }));
        }
        parts
    }

    /// Whether it allows all that a part of another rule does.
    fn covers(&self, part: &Rule) -> bool {
        let all = |mine: &[String], theirs: &[String]| theirs.iter().all(|t| has(mine, t));
        let resource = |r: &String| {
            let (plural, sub) = r.split_once('/').unwrap_or((r, ""));
            self.resources.iter().any(|mine| mine == r || resource_covers(mine, plural, sub))
        };
        all(&self.verbs, &part.verbs)
            && all(&self.groups, &part.groups)
            && part.resources.iter().all(resource)
            && (self.names.is_empty()
                || (!part.names.is_empty() && part.names.iter().all(|n| self.names.contains(n))))
            && part.urls.iter().all(|url| self.urls.iter().any(|mine| mine == url || url_covers(mine, url)))
            && (part.urls.is_empty() || !self.urls.is_empty())
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|v| v == "*" || v == wanted)
}

fn resource_covers(rule: &str, plural: &str, sub: &str) -> bool {
    if rule == "*" {
        return true;
    }
    match rule.split_once('/') {
        None => sub.is_empty() && rule == plural,
        // Of subresources a star stands for the resource only: `*/scale`, never `pods/*`.
        Some((p, s)) => !sub.is_empty() && s == sub && (p == "*" || p == plural),
    }
}

fn url_covers(rule: &str, path: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => rule == path,
    }
}

/// A list of strings as Go writes it in quotes.
pub(crate) fn quoted_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|s| quoted(s)).collect();
    format!("[{}]", quoted.join(" "))
}

/// What of `wanted` is not covered by `held`, as sorted lines; empty if all of it is.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let parts = wanted.iter().flat_map(Rule::parts);
    let lacking: Vec<Rule> = parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect();
    // Those of one resource are told together.
    let mut verbs: BTreeMap<(String, String, Option<String>), Vec<String>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for rule in lacking {
        match (rule.groups.first(), rule.resources.first(), rule.verbs.first()) {
            (Some(group), Some(resource), Some(verb)) => {
                let list =
                    verbs.entry((group.clone(), resource.clone(), rule.names.first().cloned())).or_default();
                if !list.contains(verb) {
                    list.push(verb.clone());
                }
            }
            _ => {
                lines.insert(rule.compact());
            }
        }
    }
    for ((group, resource, name), verbs) in verbs {
        let rule = Rule {
            verbs,
            groups: vec![group],
            resources: vec![resource],
            names: name.into_iter().collect(),
            urls: Vec::new(),
        };
        lines.insert(rule.compact());
    }
    lines.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `groups | resources | names | verbs`, or `urls || verbs`; lists by commas, `""` for the core group.
    fn rule(text: &str) -> Rule {
        let parts: Vec<Vec<String>> = text
            .split('|')
            .map(|part| {
                let part = part.trim();
                let items = part.split(',').filter(|_| !part.is_empty());
                items.map(|s| if s == "\"\"" { String::new() } else { s.to_string() }).collect()
            })
            .collect();
        match &parts[..] {
            [groups, resources, names, verbs] => Rule {
                groups: groups.clone(),
                resources: resources.clone(),
                names: names.clone(),
                verbs: verbs.clone(),
                urls: Vec::new(),
            },
            [urls, verbs] => Rule { urls: urls.clone(), verbs: verbs.clone(), ..Rule::default() },
            _ => panic!("{text}"),
        }
    }

    #[track_caller]
    fn check(text: &str, line: &str, allowed: bool) {
        let (method, uri) = line.split_once(' ').unwrap();
        let asked = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        assert_eq!(rule(text).allows(&asked), allowed, "{text}: {line}");
    }

    #[test]
    fn what_a_rule_allows() {
        let ns = "/api/v1/namespaces/a";
        check("\"\" | pods | | get,list", &format!("GET {ns}/pods/x"), true);
        check("\"\" | pods | | get,list", &format!("GET {ns}/pods"), true);
        check("\"\" | pods | | get,list", &format!("GET {ns}/pods?watch=true"), false);
        check("\"\" | pods | | get,list", &format!("DELETE {ns}/pods/x"), false);
        check("\"\" | pods | | get", &format!("GET {ns}/pods/x/log"), false);
        check("\"\" | pods/log | | get", &format!("GET {ns}/pods/x/log"), true);
        check("\"\" | pods/log | | get", &format!("GET {ns}/pods/x"), false);
        check("\"\" | */log | | get", &format!("GET {ns}/pods/x/log"), true);
        check("\"\" | */log | | get", &format!("GET {ns}/pods/x"), false);
        check("\"\" | pods/* | | get", &format!("GET {ns}/pods/x/log"), false);
        check("\"\" | * | | get", &format!("GET {ns}/pods/x/log"), true);
        check("\"\" | * | | *", &format!("PATCH {ns}/pods/x"), true);
        check("apps | * | | *", &format!("GET {ns}/pods/x"), false);
        check("* | deployments/scale | | update", "PUT /apis/apps/v1/namespaces/a/deployments/d/scale", true);
        check("\"\" | pods | x | get", &format!("GET {ns}/pods/x"), true);
        check("\"\" | pods | x | get", &format!("GET {ns}/pods/y"), false);
        check("\"\" | pods | x | list", &format!("GET {ns}/pods"), false);
        check("\"\" | pods | x | list,watch", &format!("GET {ns}/pods?fieldSelector=metadata.name=x"), true);
        check(
            "\"\" | pods | x | list,watch",
            &format!("GET {ns}/pods?watch=1&fieldSelector=metadata.name%3Dx"),
            true,
        );
        check(
            "\"\" | pods | x | list,watch",
            &format!("GET {ns}/pods?fieldSelector=metadata.name!=x"),
            false,
        );
        check("\"\" | pods | x | create", &format!("POST {ns}/pods"), false);
        check("\"\" | pods | x | deletecollection", &format!("DELETE {ns}/pods"), false);
        check("/metrics,/logs/* | get", "GET /metrics", true);
        check("/metrics,/logs/* | get", "GET /logs/a/b", true);
        check("/metrics,/logs/* | get", "GET /logs", false);
        check("/metrics,/logs/* | get", "POST /metrics", false);
        check("* | *", "POST /muster/shutdown", true);
        // Rights on paths are none on resources, nor the other way round.
        check("* | *", &format!("GET {ns}/pods"), false);
        check("* | * | | *", "GET /metrics", false);
        check("/api/* | get", "GET /api/v1", true);
        check("/api/* | get", &format!("GET {ns}/pods"), false);
    }

    #[track_caller]
    fn lacks(held: &[&str], wanted: &[&str], expected: &[&str]) {
        let rules = |texts: &[&str]| texts.iter().map(|t| rule(t)).collect::<Vec<_>>();
        assert_eq!(missing(&rules(held), &rules(wanted)), expected, "{held:?} {wanted:?}");
    }

    #[test]
    fn nobody_hands_out_more_than_they_have() {
        lacks(&["\"\" | pods | | get,list"], &["\"\" | pods | | get"], &[]);
        lacks(&["\"\" | pods | | get,list"], &["\"\" | pods | a | get"], &[]);
        lacks(
            &["\"\" | pods | a | get"],
            &["\"\" | pods | | get"],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
        );
        lacks(
            &["\"\" | pods | | get"],
            &["\"\",apps | pods,secrets | | get,delete"],
            &[
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}"#,
                r#"{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "delete"]}"#,
                r#"{APIGroups:["apps"], Resources:["secrets"], Verbs:["get" "delete"]}"#,
            ],
        );
        lacks(&["* | * | | *"], &["apps | deployments/scale | | patch"], &[]);
        lacks(&["\"\" | */log | | *"], &["\"\" | pods/log | | get"], &[]);
        lacks(
            &["\"\" | pods | | *"],
            &["\"\" | * | | get"],
            &[r#"{APIGroups:[""], Resources:["*"], Verbs:["get"]}"#],
        );
        lacks(
            &["\"\" | pods | | get,list"],
            &["\"\" | pods | | *"],
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#],
        );
        lacks(&["/x/* | get"], &["/x/y,/x/* | get"], &[]);
        lacks(&["* | * | | *"], &["/metrics | get"], &[r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#]);
        lacks(
            &["\"\" | pods | a,b | get"],
            &["\"\" | pods | a,c | get"],
            &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["c"], Verbs:["get"]}"#],
        );
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let some = |of: &'static [&'static str], range: std::ops::Range<usize>| {
            prop::collection::vec(prop::sample::select(of).prop_map(str::to_string), range)
        };
        (
            some(&["get", "list", "*"], 1..3),
            some(&["", "apps", "*"], 1..3),
            some(&["pods", "pods/log", "*/log", "*"], 1..3),
            some(&["x", "y"], 0..2),
        )
            .prop_map(|(verbs, groups, resources, names)| Rule {
                verbs,
                groups,
                resources,
                names,
                urls: Vec::new(),
            })
    }

    proptest! {
        /// Whoever may hand out rights gives nobody a right that they lack.
        #[test]
        fn what_is_covered_is_allowed(
            held in prop::collection::vec(any_rule(), 1..4),
            wanted in any_rule(),
            verb in prop::sample::select(&["get", "list", "delete"][..]),
            group in prop::sample::select(&["", "apps"][..]),
            resource in prop::sample::select(&["pods", "secrets"][..]),
            subresource in prop::sample::select(&["", "log"][..]),
            name in prop::sample::select(&["x", "y", ""][..]),
        ) {
            let asked = Attributes {
                verb: verb.into(), group: group.into(), resource: resource.into(),
                subresource: subresource.into(), name: name.into(), ..Attributes::default()
            };
            if missing(&held, std::slice::from_ref(&wanted)).is_empty() && wanted.allows(&asked) {
                prop_assert!(held.iter().any(|rule| rule.allows(&asked)), "{held:?} {wanted:?} {asked:?}");
            }
            prop_assert!(missing(std::slice::from_ref(&wanted), std::slice::from_ref(&wanted)).is_empty());
        }
    }
}
