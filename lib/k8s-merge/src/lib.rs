//! JSON merge patch, strategic merge patch and server-side apply for Kubernetes objects
