//! Reads the protobuf form of built-in Kubernetes objects into JSON.
