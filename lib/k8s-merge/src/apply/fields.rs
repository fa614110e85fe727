//! Sets of fields, in the form that `metadata.managedFields` stores.
//!
//! In: paths, or the JSON of `fieldsV1`. Out: sets with the usual algebra, and the same JSON. A set is a tree: each step says
//! whether the field it leads to belongs to the set, and which fields below do; owning a field says nothing about the fields
//! inside it. Must stay true: no step is empty (it is a member, or something below it is), so that equal sets are equal trees,
//! and what is written reads back as the same set.

use super::path::{Path, PathElement, PathError};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

/// A set of fields of one object.
///
/// ```
/// use k8s_merge::apply::{FieldSet, Path};
/// use serde_json::json;
///
/// let web = FieldSet::parse(&json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}))?;
/// let scaler = FieldSet::from_iter([Path::fields(["spec", "replicas"])]);
/// assert_eq!(web.difference(&scaler).to_string(), r#"{"f:spec":{"f:paused":{}}}"#);
/// assert!(web.contains(&Path::fields(["spec", "replicas"])));
/// # Ok::<(), k8s_merge::apply::FieldsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    steps: BTreeMap<PathElement, Node>,
}

/// What a set holds of one field: the field itself, and fields below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub member: bool,
    pub below: FieldSet,
}

/// Why the JSON of a field set cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// Something other than an object stands at this place.
    #[error("expected an object at {0:?}")]
    NotAnObject(String),
    /// A member name is not a path element.
    #[error("parsing key as path element: {0}")]
    Path(#[from] PathError),
    /// The object goes deeper than any object the server accepts.
    #[error("nested too deeply")]
    TooDeep,
}

impl Node {
    pub const LEAF: Self = Self { member: true, below: FieldSet::new() };

    pub fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// The set without fields, for a [`Request`](super::Request) that ignores nothing.
    pub const EMPTY: &'static Self = &Self::new();

    /// An empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { steps: BTreeMap::new() }
    }

    /// Reads the JSON of `fieldsV1`.
    pub fn parse(fields: &Value) -> Result<Self, FieldsError> {
        Ok(read(fields, "", 0)?.below)
    }

    /// The JSON of `fieldsV1`, as a value. Serializing the set itself writes the members in the order of the API server,
    /// which a value does not keep.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.steps.iter().map(|(step, node)| (step.stored(), node_value(node))).collect())
    }

    /// Adds the JSON of `fieldsV1` to `out`, as the API server writes it.
    pub(crate) fn print(&self, out: &mut String) {
        print(self, false, out);
    }

    /// Adds a field. The empty path adds nothing: nobody owns the object itself.
    pub fn insert(&mut self, path: Path) {
        let mut steps = path.0.into_iter().peekable();
        let mut set = self;
        while let Some(step) = steps.next() {
            let node = set.steps.entry(step).or_default();
            if steps.peek().is_none() {
                node.member = true;
                return;
            }
            set = &mut node.below;
        }
    }

    /// Whether the field at `path` itself is in the set.
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        let Some((last, parents)) = path.0.split_last() else { return false };
        let mut set = self;
        for step in parents {
            match set.steps.get(step) {
                Some(node) => set = &node.below,
                None => return false,
            }
        }
        set.steps.get(last).is_some_and(|node| node.member)
    }

    /// The fields below `step`, with paths that start after it.
    #[must_use]
    pub fn below(&self, step: &PathElement) -> Option<&Self> {
        self.steps.get(step).map(|node| &node.below).filter(|set| !set.is_empty())
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.values().map(|node| usize::from(node.member) + node.below.len()).sum()
    }

    /// The fields in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// The fields in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |mine, theirs| {
            Some(Node {
                member: mine.member && theirs?.member,
                below: mine.below.intersection(&theirs?.below),
            })
        })
    }

    /// The fields that are not in `other`. Fields below a field of `other` stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// The fields that are neither in `other` nor below a field of `other`.
    #[must_use]
    pub fn difference_below(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.cut(other);
        rest
    }

    /// Whether all fields are also in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.steps.iter().all(|(step, mine)| {
            let theirs = other.steps.get(step);
            theirs.is_some_and(|theirs| mine.member <= theirs.member && mine.below.is_subset(&theirs.below))
        })
    }

    /// The fields that have no other field of the set below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        self.zip(self, |mine, _| {
            Some(Node { member: mine.member && mine.below.is_empty(), below: mine.below.leaves() })
        })
    }

    /// All fields: those of one level first, then those below each of its steps. This is the order of conflict messages.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Path>) {
        for (step, _) in self.steps.iter().filter(|(_, node)| node.member) {
            out.push(prefix.iter().chain([step]).cloned().collect());
        }
        for (step, node) in &self.steps {
            prefix.push(step.clone());
            node.below.collect(prefix, out);
            prefix.pop();
        }
    }

    /// Keeps of each step what `keep` says, given the same step of `other`.
    fn zip<'a>(&'a self, other: &'a Self, keep: impl Fn(&'a Node, Option<&'a Node>) -> Option<Node>) -> Self {
        let kept = self.steps.iter().filter_map(|(step, node)| {
            let node = keep(node, other.steps.get(step)).filter(|node| !node.is_empty())?;
            Some((step.clone(), node))
        });
        Self { steps: kept.collect() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (step, node) in &other.steps {
            match self.steps.entry(step.clone()) {
                Entry::Vacant(free) => {
                    free.insert(node.clone());
                }
                Entry::Occupied(mut mine) => {
                    mine.get_mut().member |= node.member;
                    mine.get_mut().below.add(&node.below);
                }
            }
        }
    }

    /// The same for a set that nobody needs any more.
    pub(crate) fn absorb(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (step, node) in other.steps {
            self.graft(step, node);
        }
    }

    /// Takes the fields of `other` and all below them out, in time that depends on `other` only.
    pub(crate) fn cut(&mut self, other: &Self) {
        for (step, theirs) in &other.steps {
            if let Some(mine) = self.steps.get_mut(step) {
                if !theirs.member {
                    mine.below.cut(&theirs.below);
                }
                if theirs.member || mine.is_empty() {
                    self.steps.remove(step);
                }
            }
        }
    }

    /// Takes the fields of `other` out, in time that depends on `other` only.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (step, theirs) in &other.steps {
            if let Some(mine) = self.steps.get_mut(step) {
                mine.member &= !theirs.member;
                mine.below.subtract(&theirs.below);
                if mine.is_empty() {
                    self.steps.remove(step);
                }
            }
        }
    }

    /// Puts a whole branch in place; an empty one is left out.
    pub(crate) fn graft(&mut self, step: PathElement, node: Node) {
        if node.is_empty() {
            return;
        }
        match self.steps.entry(step) {
            Entry::Vacant(free) => {
                free.insert(node);
            }
            Entry::Occupied(mut mine) => {
                mine.get_mut().member |= node.member;
                mine.get_mut().below.absorb(node.below);
            }
        }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = (&PathElement, &Node)> {
        self.steps.iter()
    }

    /// The steps, to be changed; none may become empty.
    pub(crate) fn steps_mut(&mut self) -> impl Iterator<Item = (&PathElement, &mut Node)> {
        self.steps.iter_mut()
    }

    pub(crate) fn get(&self, step: &PathElement) -> Option<&Node> {
        self.steps.get(step)
    }

    /// The member of that name, found in time that depends on the number of steps.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        let is_it = |step: &PathElement| matches!(step, PathElement::Field(field) if field == name);
        self.steps.iter().find(|(step, _)| is_it(step)).map(|(_, node)| node)
    }
}

impl FromIterator<Path> for FieldSet {
    fn from_iter<I: IntoIterator<Item = Path>>(paths: I) -> Self {
        let mut set = Self::new();
        set.extend(paths);
        set
    }
}

impl Extend<Path> for FieldSet {
    fn extend<I: IntoIterator<Item = Path>>(&mut self, paths: I) {
        paths.into_iter().for_each(|path| self.insert(path));
    }
}

impl IntoIterator for &FieldSet {
    type Item = Path;
    type IntoIter = std::vec::IntoIter<Path>;

    fn into_iter(self) -> Self::IntoIter {
        self.paths().into_iter()
    }
}

/// The JSON of `fieldsV1`, byte for byte as the API server writes it.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        print(self, false, &mut out);
        f.write_str(&out)
    }
}

fn print(set: &FieldSet, member: bool, out: &mut String) {
    out.push('{');
    if member {
        out.push_str("\".\":{}");
    }
    for (i, (step, node)) in set.steps.iter().enumerate() {
        if i > 0 || member {
            out.push(',');
        }
        crate::go_format::json_string(&step.stored(), false, out);
        out.push(':');
        print(&node.below, node.member && !node.below.is_empty(), out);
    }
    out.push('}');
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Branch { set: self, member: false }.serialize(serializer)
    }
}

struct Branch<'a> {
    set: &'a FieldSet,
    member: bool,
}

impl Serialize for Branch<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.member {
            map.serialize_entry(".", FieldSet::EMPTY)?;
        }
        for (step, node) in &self.set.steps {
            let branch = Branch { set: &node.below, member: node.member && !node.below.is_empty() };
            map.serialize_entry(&step.stored(), &branch)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for FieldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn node_value(node: &Node) -> Value {
    let mut value = node.below.to_value();
    if let Value::Object(members) = &mut value
        && node.member
        && !members.is_empty()
    {
        members.insert(".".to_owned(), Value::Object(serde_json::Map::new()));
    }
    value
}

/// Reads one node. A node without steps is a member: that is how leaves are written.
fn read(fields: &Value, at: &str, depth: usize) -> Result<Node, FieldsError> {
    if depth > crate::MAX_DEPTH {
        return Err(FieldsError::TooDeep);
    }
    let members = match fields {
        Value::Null => return Ok(Node::LEAF),
        Value::Object(members) => members,
        _ => return Err(FieldsError::NotAnObject(at.to_owned())),
    };
    let mut node = Node::default();
    for (name, below) in members {
        if name == "." {
            node.member = true;
        } else if let Some(step) = PathElement::parse(name)? {
            node.below.graft(step, read(below, name, depth + 1)?);
        }
    }
    node.member |= node.below.is_empty();
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(text: &str) -> FieldSet {
        FieldSet::parse(&serde_json::from_str(text).unwrap()).unwrap()
    }

    #[track_caller]
    fn check_printed(value: &Value, printed: &str) {
        let set = FieldSet::parse(value).unwrap();
        assert_eq!(set.to_string(), printed);
        assert_eq!(serde_json::to_string(&set).unwrap(), printed);
        assert_eq!(FieldSet::parse(&set.to_value()), Ok(set.clone()));
        assert_eq!(serde_json::from_str::<FieldSet>(printed).unwrap(), set);
    }

    #[test]
    fn fields_are_printed_in_the_order_of_the_server() {
        check_printed(&json!({}), "{}");
        check_printed(
            &json!({"f:b": {}, "f:a": {"f:c": {}, ".": {}}}),
            r#"{"f:a":{".":{},"f:c":{}},"f:b":{}}"#,
        );
        check_printed(
            &json!({"k:{\"port\":443}": {}, "k:{\"port\":80}": {}, "f:x": {}, "v:10": {}, "v:9": {}, "i:1": {}}),
            r#"{"f:x":{},"k:{\"port\":80}":{},"k:{\"port\":443}":{},"v:9":{},"v:10":{},"i:1":{}}"#,
        );
        check_printed(&json!({"f:a": {".": {}}, "x:future": {"f:b": {}}}), r#"{"f:a":{}}"#);
        check_printed(&json!({"f:a": null}), r#"{"f:a":{}}"#);
    }

    #[test]
    fn malformed_sets_are_refused() {
        assert_eq!(FieldSet::parse(&json!([])), Err(FieldsError::NotAnObject(String::new())));
        assert_eq!(FieldSet::parse(&json!({"f:a": 1})), Err(FieldsError::NotAnObject("f:a".into())));
        assert!(matches!(FieldSet::parse(&json!({"a": {}})), Err(FieldsError::Path(_))));
    }

    #[track_caller]
    fn check_algebra(a: &str, b: &str, union: &str, intersection: &str, difference: &str, below: &str) {
        let (a, b) = (set(a), set(b));
        let got = [a.union(&b), a.intersection(&b), a.difference(&b), a.difference_below(&b)];
        assert_eq!(got.map(|s| s.to_string()), [union, intersection, difference, below].map(str::to_owned));
    }

    #[test]
    fn algebra() {
        check_algebra(
            r#"{"f:a":{},"f:b":{}}"#,
            r#"{"f:b":{},"f:c":{}}"#,
            r#"{"f:a":{},"f:b":{},"f:c":{}}"#,
            r#"{"f:b":{}}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{}}"#,
        );
        // Owning a parent and owning a child are two things, except for the recursive difference.
        check_algebra(
            r#"{"f:a":{".":{},"f:x":{}}}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{".":{},"f:x":{}}}"#,
            r#"{"f:a":{}}"#,
            r#"{"f:a":{"f:x":{}}}"#,
            "{}",
        );
        check_algebra(
            r#"{"f:a":{}}"#,
            r#"{"f:a":{"f:x":{}}}"#,
            r#"{"f:a":{".":{},"f:x":{}}}"#,
            "{}",
            r#"{"f:a":{}}"#,
            r#"{"f:a":{}}"#,
        );
    }

    #[test]
    fn leaves_and_order_of_paths() {
        let all = set(r#"{"f:a":{".":{},"f:x":{}},"f:b":{},"f:c":{"f:y":{".":{},"f:z":{}}}}"#);
        let printed: Vec<_> = all.paths().iter().map(Path::to_string).collect();
        assert_eq!(printed, [".a", ".b", ".a.x", ".c.y", ".c.y.z"]);
        assert_eq!(all.leaves().to_string(), r#"{"f:a":{"f:x":{}},"f:b":{},"f:c":{"f:y":{"f:z":{}}}}"#);
        assert_eq!(all.len(), 5);
        assert_eq!(FieldSet::from_iter(&all), all);
    }
}
