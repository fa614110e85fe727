//! Every collection against a plain model of it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use dense::{Id, IdSet, IdVec, Interner, UndoLog, define_id};
use proptest::prelude::*;

define_id! {
    /// A node.
    pub struct NodeId;
    struct QueueId;
}

fn set(ids: impl IntoIterator<Item = u32>) -> IdSet<NodeId> {
    ids.into_iter().map(NodeId::new).collect()
}

fn numbers(ids: impl IntoIterator<Item = NodeId>) -> Vec<u32> {
    ids.into_iter().map(|id| id.index() as u32).collect()
}

#[test]
fn ids_print_and_compare() {
    assert_eq!(format!("{:?} {}", NodeId::new(3), NodeId::new(3)), "NodeId(3) 3");
    assert_eq!(format!("{:?}", QueueId::from_index(0)), "QueueId(0)");
    assert!(NodeId::new(2) < NodeId::new(10));
    assert_eq!(size_of::<NodeId>(), 4);
}

#[test]
#[should_panic(expected = "an id fits 32 bits")]
fn an_index_past_32_bits_is_refused() {
    NodeId::from_index(1 << 32);
}

#[test]
fn vectors() {
    let mut names: IdVec<NodeId, String> = IdVec::with_capacity(2);
    let a = names.push("a".into());
    assert_eq!((a, names.next_id()), (NodeId::new(0), NodeId::new(1)));
    names.ensure(NodeId::new(3)).push('d');
    assert_eq!(format!("{names:?}"), r#"{NodeId(0): "a", NodeId(1): "", NodeId(2): "", NodeId(3): "d"}"#);
    assert_eq!(names.map(|id, name| (id, name.len())).into_vec()[3], (NodeId::new(3), 1));
    names.truncate(1);
    names[a].push('!');
    if let Some(name) = names.get_mut(a) {
        name.push('?');
    }
    assert_eq!(names.get(NodeId::new(1)), None);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a!?"]);

    let mut free: IdVec<NodeId, i64> = IdVec::from_elem(4, 3);
    free.iter_mut().for_each(|(id, item)| *item += id.index() as i64);
    assert_eq!(free.as_slice(), [4, 5, 6]);
    free.resize(4, 9);
    free.extend([1]);
    assert_eq!(free, IdVec::from(vec![4, 5, 6, 9, 1]));
    assert_eq!(free.pop(), Some(1));
    free.fill(0);
    assert_eq!(free, IdVec::from_fn(4, |_| 0));
    free.clear();
    assert!(free.is_empty() && free == IdVec::default() && free.ids().len() == 0);
}

#[test]
fn sets_are_equal_by_content() {
    let mut a = set([1, 500]);
    a.remove(NodeId::new(500));
    let b = set([1]);
    assert_eq!(a, b);
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    assert_eq!(hasher.hash_one(&a), hasher.hash_one(&b));
    assert_ne!(a, set([2]));
    assert_eq!(IdSet::<NodeId>::with_room(1000), IdSet::new());
    assert_eq!(format!("{a:?}"), "{NodeId(1)}");
    assert_eq!(IdSet::full(130), set(0..130));
}

#[test]
fn interning_is_by_first_sight() {
    let mut names: Interner<NodeId, String> = Interner::with_capacity(4);
    let ids = ["b", "a", "b", "c", "a"].map(|name| names.intern_ref(name));
    assert_eq!(numbers(ids), [0, 1, 0, 2, 1]);
    assert_eq!(names.intern("c".into()), NodeId::new(2));
    assert_eq!(names.get("c"), Some(NodeId::new(2)));
    assert_eq!(names.get("d"), None);
    assert_eq!(names.resolve(NodeId::new(3)), None);
    assert_eq!(names[NodeId::new(1)], "a");
    assert_eq!(numbers(names.ids()), [0, 1, 2]);
    assert_eq!(format!("{names:?}"), r#"{NodeId(0): "b", NodeId(1): "a", NodeId(2): "c"}"#);
}

#[test]
fn nothing_is_kept_without_a_mark() {
    let mut log = UndoLog::new();
    log.record(1);
    assert!(log.is_empty() && !log.is_recording());
    let mark = log.mark();
    log.record(2);
    log.record(3);
    assert_eq!(log.since(&mark), [2, 3]);
    log.commit(mark);
    assert!(log.is_empty() && !log.is_recording());
}

#[test]
fn rewinding_keeps_the_mark() {
    let mut log = UndoLog::new();
    let mark = log.mark();
    for round in 0..3 {
        log.record(round);
        let _inner = log.mark();
        log.record(round + 10);
        let mut undone = Vec::new();
        log.rewind(&mark, |entry| undone.push(entry));
        assert_eq!(undone, [round + 10, round]);
    }
    log.roll_back_to(mark, |_| unreachable!("nothing is left to undo"));
    assert!(!log.is_recording());
}

#[test]
#[should_panic(expected = "the mark is open in this log")]
fn a_settled_mark_is_refused() {
    let mut log = UndoLog::<()>::new();
    let outer = log.mark();
    let inner = log.mark();
    log.commit(outer);
    let _again = (log.mark(), log.mark());
    log.commit(inner);
}

#[test]
fn numbers_are_indices() {
    assert_eq!((NodeId::new(7).number(), NodeId::new(7).index()), (7, 7));
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32, i64),
    Mark,
    RollBack,
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..8_u32, any::<i64>()).prop_map(|(node, value)| Step::Write(node, value)),
        2 => Just(Step::Mark),
        1 => Just(Step::RollBack),
        1 => Just(Step::Commit),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// The model of an undo log is a stack of whole copies.
    #[test]
    fn an_undo_log_is_a_stack_of_copies(steps in steps()) {
        let mut values: IdVec<NodeId, i64> = IdVec::from_elem(0, 8);
        let mut log = UndoLog::new();
        let mut marks = Vec::new();
        let mut model = values.clone();
        let mut copies: Vec<IdVec<NodeId, i64>> = Vec::new();
        for step in steps {
            match step {
                Step::Write(node, value) => {
                    let node = NodeId::new(node);
                    log.record((node, values[node]));
                    values[node] = value;
                    model[node] = value;
                }
                Step::Mark => {
                    marks.push(log.mark());
                    copies.push(model.clone());
                }
                Step::RollBack => if let (Some(mark), Some(copy)) = (marks.pop(), copies.pop()) {
                    log.roll_back_to(mark, |(node, value)| values[node] = value);
                    model = copy;
                },
                Step::Commit => if let (Some(mark), Some(_)) = (marks.pop(), copies.pop()) {
                    log.commit(mark);
                },
            }
            prop_assert_eq!(&values, &model);
            prop_assert_eq!(log.is_recording(), !copies.is_empty());
            prop_assert!(log.is_recording() || log.is_empty());
        }
    }

    #[test]
    fn set_algebra(a in proptest::collection::btree_set(0..300_u32, 0..40),
                   b in proptest::collection::btree_set(0..300_u32, 0..40), from in 0..320_u32) {
        let (x, y) = (set(a.clone()), set(b.clone()));
        prop_assert_eq!(numbers(&x.and(&y)), Vec::from_iter(a.intersection(&b).copied()));
        prop_assert_eq!(numbers(x.iter_and(&y)), Vec::from_iter(a.intersection(&b).copied()));
        prop_assert_eq!(numbers(&x.or(&y)), Vec::from_iter(a.union(&b).copied()));
        prop_assert_eq!(numbers(&x.and_not(&y)), Vec::from_iter(a.difference(&b).copied()));
        prop_assert_eq!(x.count(), a.len());
        prop_assert_eq!(x.count_and(&y), a.intersection(&b).count());
        prop_assert_eq!(x.is_empty(), a.is_empty());
        prop_assert_eq!(x.first(), a.first().copied().map(NodeId::new));
        prop_assert_eq!(x.last(), a.last().copied().map(NodeId::new));
        prop_assert_eq!(x.first_from(NodeId::new(from)), a.range(from..).next().copied().map(NodeId::new));
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert!(x.and(&y).is_subset(&x));
        prop_assert_eq!(x == y, a == b);
        prop_assert_eq!(numbers(x.iter().rev()), Vec::from_iter(a.iter().rev().copied()));
        let mut even = x.clone();
        even.retain(|id| id.index() % 2 == 0);
        prop_assert_eq!(numbers(&even), Vec::from_iter(a.iter().copied().filter(|n| n % 2 == 0)));
    }

    #[test]
    fn set_steps(steps in proptest::collection::vec((0..3_u8, 0..200_u32), 0..100)) {
        let mut model = BTreeSet::new();
        let mut subject = IdSet::with_room(10);
        for (kind, number) in steps {
            let id = NodeId::new(number);
            match kind {
                0 => prop_assert_eq!(subject.insert(id), model.insert(number)),
                1 => prop_assert_eq!(subject.remove(id), model.remove(&number)),
                _ => {
                    subject.set(id, number % 3 == 0);
                    if number % 3 == 0 { model.insert(number); } else { model.remove(&number); }
                }
            }
            prop_assert_eq!(subject.contains(id), model.contains(&number));
        }
        prop_assert_eq!(numbers(&subject), Vec::from_iter(model));
        subject.clear();
        prop_assert!(subject.is_empty());
    }

    #[test]
    fn interner_is_a_map_to_first_places(keys in proptest::collection::vec("[a-c]{0,3}", 0..60)) {
        let mut model: BTreeMap<String, usize> = BTreeMap::new();
        let mut subject: Interner<NodeId, String> = Interner::new();
        for key in &keys {
            let next = model.len();
            let expected = *model.entry(key.clone()).or_insert(next);
            prop_assert_eq!(subject.intern_ref(key.as_str()).index(), expected);
        }
        prop_assert_eq!(subject.len(), model.len());
        prop_assert_eq!(subject.is_empty(), keys.is_empty());
        for (id, key) in subject.iter() {
            prop_assert_eq!(model[key], id.index());
            prop_assert_eq!(subject.get(key), Some(id));
        }
        let collected: Interner<NodeId, String> = keys.into_iter().collect();
        prop_assert!(collected.iter().eq(subject.iter()));
    }
}
