//! Addresses of services: cluster IPs and node ports. Nothing routes to them in the embedded cluster, but clients expect
//! every service to have one of its own.

use crate::meta;
use crate::server::ApiServer;
use crate::status::ApiError;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// First address of 10.96.0.0/12, the range that kubeadm hands out too; the first addresses are the system's own.
const FIRST: u32 = 0x0A60_0000 + 16;
/// Size of the range.
const ADDRESSES: u32 = (1 << 20) - 32;
/// Node ports of Kubernetes.
const PORTS: std::ops::Range<u16> = 30000..32768;

impl ApiServer {
    /// Gives a new service a cluster IP and node ports where its type asks for them.
    pub(crate) fn allocate_addresses(&self, service: &mut Value) -> Result<(), ApiError> {
        let kind = meta::text_at(service, "spec.type").to_string();
        if kind == "ExternalName" {
            return Ok(());
        }
        let others = self.all("services");
        if meta::text_at(service, "spec.clusterIP").is_empty() {
            let taken: BTreeSet<&str> = others.iter().map(|s| meta::text_at(s, "spec.clusterIP")).collect();
            // The uid is random, so it makes a good place to start the search.
            let start =
                meta::uid(service).bytes().fold(0u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
            let free = (0..ADDRESSES)
                .map(|i| Ipv4Addr::from(FIRST + start.wrapping_add(i) % ADDRESSES).to_string())
                .find(|ip| !taken.contains(ip.as_str()))
                .ok_or_else(|| ApiError::internal("no cluster IP is free"))?;
            meta::set_at(service, "spec.clusterIP", free.into());
        }
        if service["spec"].get("clusterIPs").is_none() {
            let ip = service["spec"]["clusterIP"].clone();
            meta::set_at(service, "spec.clusterIPs", json!([ip]));
        }
        if !matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let mut taken: BTreeSet<u64> = others
            .iter()
            .chain([&*service])
            .filter_map(|s| meta::at(s, "spec.ports").and_then(Value::as_array))
            .flatten()
            .filter_map(|p| p["nodePort"].as_u64())
            .collect();
        let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter(|p| p["nodePort"].as_u64().unwrap_or(0) == 0) {
            let free = PORTS
                .map(u64::from)
                .find(|p| !taken.contains(p))
                .ok_or_else(|| ApiError::internal("no node port is free"))?;
            taken.insert(free);
            port["nodePort"] = free.into();
        }
        Ok(())
    }
}
