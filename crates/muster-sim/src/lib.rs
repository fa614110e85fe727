//! Simulated nodes and kubelets, workload controllers and faults, as ordinary API clients
