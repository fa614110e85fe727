//! The names of everything that is made for a set.
//!
//! In: names of sets, groups and cliques, and indexes. Out: names. Must stay true: names are only ever made here and never
//! taken apart; what an object belongs to is said by its labels.

/// A replica of a set: its base gang, its headless service, the subdomain of its pods.
pub fn replica(set: &str, replica: i64) -> String {
    format!("{set}-{replica}")
}

/// The gang of a replica of a scaling group beyond the minimum; `index` counts from the first such replica.
pub fn scaled_gang(set: &str, replica: i64, group: &str, index: i64) -> String {
    format!("{set}-{replica}-{group}-{index}")
}

/// A scaling group of a replica of a set.
pub fn group(set: &str, replica: i64, group: &str) -> String {
    format!("{set}-{replica}-{group}")
}

/// A clique that is in no scaling group.
pub fn clique(set: &str, replica: i64, clique: &str) -> String {
    format!("{set}-{replica}-{clique}")
}

/// A clique of a replica of a scaling group; `group` is the full name of the group.
pub fn group_clique(group: &str, replica: i64, clique: &str) -> String {
    format!("{group}-{replica}-{clique}")
}

/// A replica of a scaling group as a unit of placement inside its gang; `group` is the full name of the group.
pub fn group_replica(group: &str, replica: i64) -> String {
    format!("{group}-{replica}")
}

/// The host name of a pod.
pub fn host(clique: &str, index: i64) -> String {
    format!("{clique}-{index}")
}

/// Where the pods of a replica of a set are found.
pub fn service_host(set: &str, index: i64, namespace: &str) -> String {
    format!("{}.{namespace}.svc.cluster.local", replica(set, index))
}

/// Role and role binding of a set.
pub fn role(set: &str) -> String {
    format!("grove.io:pcs:{set}")
}

/// A claim that all replicas of its owner share.
pub fn claim_of_all(owner: &str, template: &str) -> String {
    format!("{owner}-all-{template}")
}

/// A claim that one replica of its owner has for itself.
pub fn claim_of_replica(owner: &str, replica: i64, template: &str) -> String {
    format!("{owner}-{replica}-{template}")
}

pub fn compute_domain(set: &str, replica: i64, group: &str) -> String {
    format!("{set}-{replica}-{group}")
}

/// The secret that the containers of a clique wait for. By uid, so that a clique that is made anew waits anew.
pub fn start_secret(clique_uid: &str) -> String {
    format!("grove-start-{clique_uid}")
}

/// A PodGroup of KAI as the documents name it.
pub fn kai_group(gang: &str, uid: &str) -> String {
    format!("pg-{gang}-{uid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of a set `workload2` with one group `sg-x` of two replicas, minimum 1.
    #[test]
    fn worked_example() {
        let sg = group("workload2", 0, "sg-x");
        assert_eq!(replica("workload2", 0), "workload2-0");
        assert_eq!(sg, "workload2-0-sg-x");
        assert_eq!(clique("workload2", 0, "pc-a"), "workload2-0-pc-a");
        assert_eq!(group_clique(&sg, 1, "pc-b"), "workload2-0-sg-x-1-pc-b");
        assert_eq!(scaled_gang("workload2", 0, "sg-x", 0), "workload2-0-sg-x-0");
        assert_eq!(service_host("workload2", 0, "ns"), "workload2-0.ns.svc.cluster.local");
        assert_eq!(claim_of_all("workload2", "gpu"), "workload2-all-gpu");
        assert_eq!(claim_of_replica("workload2", 0, "gpu"), "workload2-0-gpu");
        assert_eq!(kai_group("ml-training-0", "abc-123-def"), "pg-ml-training-0-abc-123-def");
    }
}
