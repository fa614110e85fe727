//! Names, labels and times: the small values that everything else is made of.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;

/// A shared string: a name is written once and pointed to from everywhere.
pub type Name = Arc<str>;

/// What the names of another system's objects than KAI's begin with, so that objects of two systems never meet under one name: no name in
/// Kubernetes has a slash.
const SYSTEMS: [&str; 4] = ["volcano/", "t9k/", "koordinator/", "kubernetes/"];

/// What an object is called in its own system.
pub fn own_name(name: &str) -> &str {
    SYSTEMS.into_iter().find_map(|system| name.strip_prefix(system)).unwrap_or(name)
}

/// Labels of a pod, a node or an object.
pub type Labels = BTreeMap<Name, Name>;

/// What names a namespaced object. Gangs of different namespaces never meet under one name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Name,
    pub name: Name,
}

impl Key {
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl Key {
    /// The same by its name in its own system.
    pub fn own(&self) -> Self {
        Self { namespace: self.namespace.clone(), name: own_name(&self.name).into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A moment: milliseconds since the epoch, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub i64);

impl Span {
    pub const ZERO: Self = Self(0);

    pub const fn seconds(n: i64) -> Self {
        Self(n.saturating_mul(1000))
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Time {
    type Output = Span;

    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}
