//! Kubernetes resource quantities: exact, canonical, refusing what the API server refuses
