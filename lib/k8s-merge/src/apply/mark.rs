//! What tells an element of a list apart from the others, without a copy of it.
//!
//! In: an element and the key fields of its list. Out: a mark that compares and is written like the [`PathElement`] that it stands for. Every write
//! looks at every element of such lists, and only few end up in a path.

use super::path::{Literal, PathElement, compare, stored_key, stored_value};
use serde_json::Value;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The identity of an element.
#[derive(Clone, Debug)]
pub(super) enum Mark<'a> {
    /// Its key fields, sorted by name.
    Key(SmallVec<[(&'a str, Cow<'a, Value>); 1]>),
    /// The element itself.
    Value(&'a Value),
}

impl<'a> Mark<'a> {
    pub fn key(fields: impl IntoIterator<Item = (&'a str, Cow<'a, Value>)>) -> Self {
        let mut fields: SmallVec<[_; 1]> = fields.into_iter().collect();
        fields.sort_by(|a, b| a.0.cmp(b.0));
        Self::Key(fields)
    }

    /// The step of a path that leads to it.
    pub fn element(&self) -> PathElement {
        match self {
            Self::Key(fields) => {
                let literal = |(name, value): &(&str, Cow<'_, Value>)| {
                    ((*name).to_owned(), Literal(value.clone().into_owned()))
                };
                PathElement::Key(fields.iter().map(literal).collect())
            }
            Self::Value(value) => PathElement::Value(Literal((*value).clone())),
        }
    }

    /// Adds the notation that is stored.
    pub fn store(&self, out: &mut String) {
        match self {
            Self::Key(fields) => stored_key(fields.iter().map(|(name, value)| (*name, &**value)), out),
            Self::Value(value) => stored_value(value, out),
        }
    }
}

impl PartialEq for Mark<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Mark<'_> {}

impl PartialOrd for Mark<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Mark<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Key(a), Self::Key(b)) => {
                let mut orders = a.iter().zip(b).map(|(a, b)| a.0.cmp(b.0).then_with(|| compare(&a.1, &b.1)));
                orders.find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Key(_), Self::Value(_)) => Ordering::Less,
            (Self::Value(_), Self::Key(_)) => Ordering::Greater,
        }
    }
}
