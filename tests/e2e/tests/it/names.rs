//! With every group's CRDs installed, kubectl takes a name to mean the same thing on both servers.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use muster_e2e::script::{Shell, has_kubectl};
use muster_e2e::{clusters, crds};
use muster_testkit::{Cluster, Request};
use regex::Regex;

#[tokio::test]
async fn names_real() -> Result<()> {
    match clusters::real().await? {
        Some(real) => check(real).await,
        None => Ok(()),
    }
}

#[tokio::test]
async fn names_embedded() -> Result<()> {
    check(clusters::embedded().await?).await
}

/// The order of groups and resources in discovery is what decides, so it is compared as a whole for the groups of CRDs.
#[tokio::test]
async fn discovery_order_real_and_embedded() -> Result<()> {
    let embedded = clusters::embedded().await?;
    let Some(real) = clusters::real().await? else { return Ok(()) };
    if !has_kubectl().await? {
        return Ok(());
    }
    assert_eq!(order(embedded).await?, order(real).await?);
    Ok(())
}

async fn check(cluster: &'static Cluster) -> Result<()> {
    if !has_kubectl().await? {
        return Ok(());
    }
    crds::install(cluster).await?;
    let expected: BTreeMap<String, String> =
        serde_saphyr::from_str(include_str!("../../data/names.yaml")).context("data/names.yaml")?;
    let asked = Regex::new(r#"https://127\.0\.0\.1:\d+(/apis?/[^\s"?]*)"#)?;
    let namespace = Regex::new("/namespaces/[^/]+")?;
    let wrong = tokio::task::spawn_blocking(move || -> Result<Vec<String>> {
        let shell = Shell::new(cluster, "names")?;
        let mut wrong = Vec::new();
        for (name, path) in expected {
            // At this level kubectl prints the requests; the last one is the list itself.
            let said = shell.run(&format!("kubectl get {name} -v=6"), "")?;
            let got =
                asked.captures_iter(&said.err).last().map(|c| namespace.replace(&c[1], "").into_owned());
            if got.as_deref() != Some(path.as_str()) {
                wrong.push(format!("{name}: {} instead of {path}", got.as_deref().unwrap_or(&said.err)));
            }
        }
        Ok(wrong)
    })
    .await??;
    assert!(wrong.is_empty(), "on {}:\n{}", cluster.name, wrong.join("\n"));
    Ok(())
}

/// `group/version resource` in the order of the aggregated document, of the groups that have CRDs of Muster.
async fn order(cluster: &'static Cluster) -> Result<Vec<String>> {
    crds::install(cluster).await?;
    let http = cluster.http().await?;
    let crds =
        http.send(&Request::new("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")).await?;
    let crds = crds.json().context("the list of CRDs is JSON")?;
    let installed: Vec<&str> = crds["items"]
        .as_array()
        .context("a list has items")?
        .iter()
        .filter_map(|crd| crd.pointer("/spec/group")?.as_str())
        // Other tests of this process make CRDs of their own.
        .filter(|group| !group.ends_with(".example.com"))
        .collect();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = http.send(&Request::new("GET", "/apis").header("accept", accept)).await?;
    let groups = groups.json().context("discovery is JSON")?;
    let mut order = Vec::new();
    for group in groups["items"].as_array().context("discovery has items")? {
        let name = group.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or_default();
        if !installed.contains(&name) {
            continue;
        }
        for version in group["versions"].as_array().into_iter().flatten() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
                order.push(format!("{name}/{} {}", text(&version["version"]), text(&resource["resource"])));
            }
        }
    }
    Ok(order)
}
