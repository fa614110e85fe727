//! What leads to pods: services, endpoints, ingresses and network policies.

use std::collections::BTreeSet;

use super::read::{Object, first_few, labels, selector_cell};
use super::{AGE, Known, NAME, text, wide};
use crate::Cell;

pub(super) const KINDS: &[Known] = &[
    Known {
        group: "",
        kind: "Service",
        columns: &[
            NAME,
            text("Type"),
            text("Cluster-IP"),
            text("External-IP"),
            text("Port(s)"),
            AGE,
            wide("Selector"),
        ],
        cells: service,
    },
    Known { group: "", kind: "Endpoints", columns: &[NAME, text("Endpoints"), AGE], cells: endpoints },
    Known {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        columns: &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE],
        cells: endpoint_slice,
    },
    Known {
        group: "networking.k8s.io",
        kind: "Ingress",
        columns: &[NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE],
        cells: ingress,
    },
    Known {
        group: "networking.k8s.io",
        kind: "IngressClass",
        columns: &[NAME, text("Controller"), text("Parameters"), AGE],
        cells: ingress_class,
    },
    Known {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        columns: &[NAME, text("Pod-Selector"), AGE],
        cells: network_policy,
    },
    Known {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        columns: &[NAME, text("CIDRs"), AGE],
        cells: service_cidr,
    },
];

fn service(object: Object<'_>) -> Vec<Cell> {
    let type_ = object.text_or("spec.type", "ClusterIP");
    let cluster_ips = object.texts("spec.clusterIPs");
    let cluster_ip = cluster_ips.first().copied().unwrap_or(object.text_or("spec.clusterIP", "<none>"));
    let port = |port: Object<'_>| {
        let (number, node_port) = (port.integer("port"), port.integer("nodePort"));
        let protocol = port.text_or("protocol", "TCP");
        if node_port > 0 {
            format!("{number}:{node_port}/{protocol}")
        } else {
            format!("{number}/{protocol}")
        }
    };
    let ports: Vec<_> = object.list("spec.ports").map(port).collect();
    vec![
        object.name(),
        type_.into(),
        cluster_ip.into(),
        external_ip(object, type_).into(),
        if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }.into(),
        object.age(),
        labels(object.map("spec.selector")).into(),
    ]
}

fn external_ip(object: Object<'_>, type_: &str) -> String {
    let external = object.texts("spec.externalIPs").join(",");
    match type_ {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".into(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(object), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".into(),
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) if external.is_empty() => balancer,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => object.text("spec.externalName").into(),
        _ => "<unknown>".into(),
    }
}

/// The addresses or names of a load balancer, sorted.
fn load_balancer(object: Object<'_>) -> String {
    let point = |ingress: Object<'_>| {
        let (ip, hostname) = (ingress.text("ip"), ingress.text("hostname"));
        Some(if ip.is_empty() { hostname.to_owned() } else { ip.to_owned() }).filter(|text| !text.is_empty())
    };
    let points: BTreeSet<String> = object.list("status.loadBalancer.ingress").filter_map(point).collect();
    points.into_iter().collect::<Vec<_>>().join(",")
}

fn endpoints(object: Object<'_>) -> Vec<Cell> {
    let mut addresses = Vec::new();
    for subset in object.list("subsets") {
        let ips = || subset.list("addresses").map(|address| address.text("ip"));
        if subset.list("ports").len() == 0 {
            addresses.extend(ips().map(str::to_owned));
        }
        for port in subset.list("ports") {
            addresses.extend(ips().map(|ip| host_and_port(ip, port.integer("port"))));
        }
    }
    let has_subsets = object.list("subsets").len() > 0;
    let text = if has_subsets { first_few(&addresses, 3) } else { "<none>".into() };
    vec![object.name(), text.into(), object.age()]
}

fn host_and_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn endpoint_slice(object: Object<'_>) -> Vec<Cell> {
    let port = |port: Object<'_>| match port.integer_if_set("port") {
        Some(number) => number.to_string(),
        None => port.text("name").to_owned(),
    };
    let ports: Vec<String> = object.list("ports").map(port).collect();
    let addresses: Vec<String> =
        object.list("endpoints").flat_map(|e| e.texts("addresses")).map(str::to_owned).collect();
    let or_unset = |text: String| if text.is_empty() { "<unset>".to_owned() } else { text };
    vec![
        object.name(),
        object.cell("addressType"),
        or_unset(first_few(&ports, 3)).into(),
        or_unset(first_few(&addresses, 3)).into(),
        object.age(),
    ]
}

fn ingress(object: Object<'_>) -> Vec<Cell> {
    let ports = if object.list("spec.tls").len() > 0 { "80, 443" } else { "80" };
    vec![
        object.name(),
        object.cell_or("spec.ingressClassName", "<none>"),
        hosts(object).into(),
        load_balancer(object).into(),
        ports.into(),
        object.age(),
    ]
}

/// The first three hosts. Any rule after the third host is one more, with a host of its own or not.
fn hosts(object: Object<'_>) -> String {
    const N_SHOWN: usize = 3;
    let mut shown = Vec::new();
    let mut has_more = false;
    for rule in object.list("spec.rules") {
        has_more |= shown.len() == N_SHOWN;
        shown.extend(rule.text_if_set("host").filter(|host| !has_more && !host.is_empty()));
    }
    let text = if shown.is_empty() { "*".to_owned() } else { shown.join(",") };
    if has_more { format!("{text} + {} more...", object.list("spec.rules").len() - N_SHOWN) } else { text }
}

fn ingress_class(object: Object<'_>) -> Vec<Cell> {
    let is_default = object.annotation("ingressclass.kubernetes.io/is-default-class") == Some("true");
    let default = if is_default { " (default)" } else { "" };
    let parameters = match object.get("spec.parameters") {
        None => "<none>".to_owned(),
        Some(_) => {
            let group = object.text_if_set("spec.parameters.apiGroup");
            let group = group.map(|group| format!(".{group}")).unwrap_or_default();
            format!("{}{group}/{}", object.text("spec.parameters.kind"), object.text("spec.parameters.name"))
        }
    };
    vec![
        format!("{}{default}", object.text("metadata.name")).into(),
        object.cell("spec.controller"),
        parameters.into(),
        object.age(),
    ]
}

fn network_policy(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), selector_cell(object, "spec.podSelector"), object.age()]
}

fn service_cidr(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.texts("spec.cidrs").join(",").into(), object.age()]
}
