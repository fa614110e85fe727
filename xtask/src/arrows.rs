//! Which room may use which: the dependencies between the workspace's crates, checked against `cargo metadata`.
//!
//! In: the manifests. Out: every dependency that is not an allowed arrow. ARCHITECTURE.md draws the same arrows.

#![cfg(test)]

use serde_json::Value;
use std::collections::BTreeMap;

/// Crate, then the workspace crates that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("dense", &[]),
    ("k8s-quantity", &[]),
    ("k8s-merge", &[]),
    ("k8s-proto", &[]),
    ("k8s-table", &["k8s-quantity"]),
    ("k8s-schema", &["k8s-merge", "k8s-quantity"]),
    ("k8s-builtin", &["k8s-quantity", "k8s-schema"]),
    ("muster-api-derive", &[]),
    ("muster-api", &["k8s-quantity", "muster-api-derive"]),
    (
        "muster-apiserver",
        &["k8s-builtin", "k8s-merge", "k8s-proto", "k8s-quantity", "k8s-schema", "k8s-table"],
    ),
    ("muster-runtime", &[]),
    ("muster-sim", &["k8s-quantity", "muster-runtime"]),
    ("muster-model", &[]),
    ("muster-admit", &["dense", "muster-model"]),
    ("muster-translate", &["k8s-quantity", "k8s-schema", "muster-admit", "muster-model"]),
    ("muster-engine", &["dense", "muster-model"]),
    ("muster-generate", &["muster-model"]),
    ("muster-binder", &["k8s-quantity", "muster-runtime"]),
    ("muster-grouper", &["muster-runtime"]),
    ("muster-grove", &["k8s-quantity", "muster-runtime"]),
    ("muster-kueue", &["k8s-quantity", "muster-admit", "muster-model", "muster-runtime", "muster-translate"]),
    ("muster-convert", &[]),
    ("muster-controllers", &["k8s-quantity", "muster-model", "muster-runtime", "muster-translate"]),
    (
        "muster-webhook",
        &["k8s-quantity", "muster-grove", "muster-kueue", "muster-runtime", "muster-translate"],
    ),
    ("muster-install", &["muster-runtime"]),
    (
        "muster-scheduler",
        &[
            "muster-binder",
            "muster-engine",
            "muster-model",
            "muster-runtime",
            "muster-scenario",
            "muster-translate",
        ],
    ),
    (
        "muster-scenario",
        &["k8s-quantity", "muster-admit", "muster-engine", "muster-model", "muster-translate"],
    ),
    (
        "muster",
        &[
            "k8s-quantity",
            "k8s-table",
            "muster-api",
            "muster-apiserver",
            "muster-binder",
            "muster-controllers",
            "muster-convert",
            "muster-engine",
            "muster-grouper",
            "muster-grove",
            "muster-install",
            "muster-kueue",
            "muster-model",
            "muster-runtime",
            "muster-scenario",
            "muster-scheduler",
            "muster-sim",
            "muster-translate",
            "muster-webhook",
        ],
    ),
    ("muster-testkit", &[]),
    ("muster-e2e", &["muster-generate", "muster-testkit"]),
    (
        "muster-chaos",
        &[
            "k8s-quantity",
            "muster-api",
            "muster-apiserver",
            "muster-binder",
            "muster-controllers",
            "muster-grouper",
            "muster-install",
            "muster-model",
            "muster-runtime",
            "muster-scheduler",
            "muster-sim",
            "muster-translate",
            "muster-webhook",
        ],
    ),
    ("xtask", &["muster-api", "muster-testkit"]),
];

/// Third-party crates that a room must never see, by what it promises to be.
const BANNED: &[(&[&str], &[&str])] = &[
    // Libraries are pure: no runtime, no client, no network.
    (
        &["dense", "k8s-quantity", "k8s-merge", "k8s-proto", "k8s-table", "k8s-schema", "k8s-builtin"],
        &["tokio", "kube", "hyper", "k8s-openapi", "rand", "uuid"],
    ),
    // Decisions are pure: no serialisation, no client, no runtime, no clock, no randomness.
    (
        &["muster-model", "muster-admit", "muster-engine", "muster-generate"],
        &["tokio", "kube", "hyper", "k8s-openapi", "rand", "uuid", "serde", "serde_json", "jiff"],
    ),
    (
        &["muster-translate", "muster-scenario", "muster-convert"],
        &["tokio", "kube", "hyper", "k8s-openapi", "rand", "uuid"],
    ),
    // Types and conversions: never a runtime.
    (&["muster-api"], &["tokio", "hyper", "rand", "uuid"]),
    // The server is judged against the real one, so it knows nothing of clients.
    (&["muster-apiserver"], &["kube", "k8s-openapi"]),
    // Services reach the API through muster-runtime, which alone builds a client.
    (
        &[
            "muster-binder",
            "muster-grouper",
            "muster-grove",
            "muster-kueue",
            "muster-controllers",
            "muster-scheduler",
            "muster-install",
        ],
        &["kube", "hyper", "rustls", "k8s-openapi", "rand"],
    ),
    // Simulated nodes are ordinary API clients.
    (&["muster-sim"], &["hyper", "rustls"]),
];

fn packages() -> Vec<Value> {
    let output = crate::command::cargo(&["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Names of normal and build dependencies; what tests use is free.
fn uses(package: &Value) -> Vec<String> {
    package["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["kind"] != "dev")
        .map(|d| d["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn every_dependency_is_an_arrow() {
    let packages = packages();
    let members: Vec<&str> = packages.iter().map(|p| p["name"].as_str().unwrap()).collect();
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = arrows.get(name) else {
            wrong.push(format!("{name} has no entry: say what it may use"));
            continue;
        };
        for used in uses(package).iter().filter(|u| members.contains(&u.as_str())) {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!("{name} must not use {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_rooms_stay_pure() {
    let packages = packages();
    let mut wrong = Vec::new();
    for (rooms, banned) in BANNED {
        for package in packages.iter().filter(|p| rooms.contains(&p["name"].as_str().unwrap())) {
            for used in uses(package).iter().filter(|u| banned.contains(&u.as_str())) {
                wrong.push(format!("{} must not use {used}", package["name"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
