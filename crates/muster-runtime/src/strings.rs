//! Labels, annotations and other small maps of texts.
//!
//! In: pairs. Out: a map in the order of its keys, kept as one list of exactly that length. Objects have few labels and there are hundreds of thousands of
//! objects: a B-tree takes 544 bytes for the first pair, a list 48.
//!
//! What stays true: keys are sorted, and each is there once.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

type Pair = (String, String);

/// A small map of texts.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strings {
    pairs: Vec<Pair>,
}

impl Strings {
    pub const fn new() -> Self {
        Self { pairs: Vec::new() }
    }

    fn place(&self, key: &str) -> Result<usize, usize> {
        self.pairs.binary_search_by(|(have, _)| have.as_str().cmp(key))
    }

    pub fn get(&self, key: &str) -> Option<&String> {
        self.place(key).ok().and_then(|at| self.pairs.get(at)).map(|(_, value)| value)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.place(key).is_ok()
    }

    /// Puts a value in, and answers the one that was there before.
    pub fn insert(&mut self, key: String, value: String) -> Option<String> {
        match self.place(&key) {
            Ok(at) => self.pairs.get_mut(at).map(|(_, old)| std::mem::replace(old, value)),
            Err(at) => {
                self.pairs.reserve_exact(1);
                self.pairs.insert(at, (key, value));
                None
            }
        }
    }

    /// Puts a value in unless there is one.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        if let Err(at) = self.place(key) {
            self.pairs.reserve_exact(1);
            self.pairs.insert(at, (key.to_owned(), value.into()));
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.place(key).ok().map(|at| self.pairs.remove(at).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&String, &mut String) -> bool) {
        self.pairs.retain_mut(|(key, value)| keep(key, value));
    }

    pub fn iter(&self) -> Iter<'_> {
        self.pairs.iter().map(|(key, value)| (key, value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut String)> {
        self.pairs.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &String> {
        self.pairs.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &String> {
        self.pairs.iter().map(|(_, value)| value)
    }

    /// The pairs from this key on.
    pub fn starting_at(&self, key: &str) -> Iter<'_> {
        let at = self.place(key).unwrap_or_else(|at| at);
        self.pairs.get(at..).unwrap_or_default().iter().map(|(key, value)| (key, value))
    }

    pub fn clear(&mut self) {
        self.pairs = Vec::new();
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Pairs in any order; of those with one key the last counts.
    fn of(mut pairs: Vec<Pair>) -> Self {
        if !pairs.is_sorted_by(|(a, _), (b, _)| a < b) {
            pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
            pairs.dedup_by(|later, first| {
                let is_same = later.0 == first.0;
                if is_same {
                    std::mem::swap(&mut later.1, &mut first.1);
                }
                is_same
            });
        }
        pairs.shrink_to_fit();
        Self { pairs }
    }
}

/// The pairs in the order of their keys.
pub type Iter<'a> = std::iter::Map<std::slice::Iter<'a, Pair>, fn(&'a Pair) -> (&'a String, &'a String)>;

impl<'a> IntoIterator for &'a Strings {
    type Item = (&'a String, &'a String);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Strings {
    type Item = Pair;
    type IntoIter = std::vec::IntoIter<Pair>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

impl FromIterator<Pair> for Strings {
    fn from_iter<I: IntoIterator<Item = Pair>>(pairs: I) -> Self {
        Self::of(pairs.into_iter().collect())
    }
}

impl Extend<Pair> for Strings {
    fn extend<I: IntoIterator<Item = Pair>>(&mut self, pairs: I) {
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

impl<const N: usize> From<[Pair; N]> for Strings {
    fn from(pairs: [Pair; N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl Index<&str> for Strings {
    type Output = String;

    fn index(&self, key: &str) -> &String {
        self.get(key).expect("only a key that is there is indexed by")
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Strings {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Pairs::<String>(PhantomData))
    }
}

/// Reads pairs whose values are written as `V`.
struct Pairs<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de> + Into<String>> Visitor<'de> for Pairs<V> {
    type Value = Strings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_none<E>(self) -> Result<Strings, E> {
        Ok(Strings::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Strings, D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
        let mut pairs = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, V>()? {
            pairs.push((key, value.into()));
        }
        Ok(Strings::of(pairs))
    }
}

/// Quantities are texts, but a server may hand a number through as it was written.
pub fn quantities<'de, D: Deserializer<'de>>(from: D) -> Result<Strings, D::Error> {
    from.deserialize_option(Pairs::<Quantity>(PhantomData))
}

/// A quantity as it is written, whatever it is written as.
struct Quantity(String);

impl From<Quantity> for String {
    fn from(quantity: Quantity) -> Self {
        quantity.0
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(|value| match value {
            Value::String(text) => Quantity(text),
            other => Quantity(other.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(String, String),
        Add(String, String),
        Remove(String),
        Keep(char),
        Extend(Vec<Pair>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = "[a-e]{0,2}";
        let step = prop_oneof![
            (key, "[x-z]").prop_map(|(k, v)| Step::Insert(k, v)),
            (key, "[x-z]").prop_map(|(k, v)| Step::Add(k, v)),
            key.prop_map(Step::Remove),
            prop::char::range('x', 'z').prop_map(Step::Keep),
            prop::collection::vec((key, "[x-z]"), 0..4).prop_map(Step::Extend),
        ];
        prop::collection::vec(step, 0..12)
    }

    proptest! {
        /// Whatever is done to it, it is the map that a B-tree would be.
        #[test]
        fn it_is_a_map(first in prop::collection::vec(("[a-e]{0,2}", "[x-z]"), 0..6), steps in steps()) {
            let mut got: Strings = first.iter().cloned().collect();
            let mut expected: BTreeMap<String, String> = first.into_iter().collect();
            for step in steps {
                match step {
                    Step::Insert(k, v) => prop_assert_eq!(got.insert(k.clone(), v.clone()), expected.insert(k, v)),
                    Step::Add(k, v) => {
                        got.add(&k, v.clone());
                        expected.entry(k).or_insert(v);
                    }
                    Step::Remove(k) => prop_assert_eq!(got.remove(&k), expected.remove(&k)),
                    Step::Keep(c) => {
                        got.retain(|_, v| v.contains(c));
                        expected.retain(|_, v| v.contains(c));
                    }
                    Step::Extend(pairs) => {
                        got.extend(pairs.clone());
                        expected.extend(pairs);
                    }
                }
            }
            prop_assert!(got.iter().eq(&expected));
            prop_assert!(got.starting_at("b").eq(expected.range("b".to_owned()..)));
            prop_assert!(expected.iter().all(|(k, v)| got.get(k) == Some(v)));
            let text = serde_json::to_string(&got).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&expected).unwrap());
            prop_assert_eq!(serde_json::from_str::<Strings>(&text).unwrap(), got);
        }
    }

    #[test]
    fn quantities_are_read_as_they_are_written() {
        for (text, expected) in [
            (r#"{"cpu": "500m", "memory": 1073741824}"#, "cpu=500m memory=1073741824"),
            (r#"{"cpu": 0.5}"#, "cpu=0.5"),
            (r#"{"cpu": null, "gpu": {}}"#, "cpu=null gpu={}"),
            ("{}", ""),
            ("null", ""),
        ] {
            let read = quantities(&mut serde_json::Deserializer::from_str(text)).unwrap();
            let shown: Vec<String> = read.iter().map(|(k, v)| format!("{k}={v}")).collect();
            assert_eq!(shown.join(" "), expected, "{text}");
            let tree: Value = serde_json::from_str(text).unwrap();
            assert_eq!(quantities(tree).unwrap(), read, "{text}");
        }
        assert!(quantities(Value::from(1)).is_err());
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let read: Strings = serde_json::from_str(r#"{"b": "1", "a": "2", "b": "3"}"#).unwrap();
        assert_eq!(read, [("a", "2"), ("b", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(serde_json::from_str::<Strings>("[]").is_err());
        assert!(serde_json::from_str::<Strings>("null").is_err());
    }
}
