//! The fields that whoever makes an object owns, written down without a set of them in between.
//!
//! In: the object, and what objects of its kind are made from. Out: the text of `fieldsV1`. Must stay true: it says what
//! [`update`](super::update()) would record. Most objects are made and seldom written again, so that this is most of what records cost.

use super::fields::{FieldSet, Node};
use super::mark::Mark;
use super::path::equal;
use super::typed::{Form, Type, items, members};
use crate::Shape;
use crate::go_format::{json_escaped, json_string};
use serde_json::Value;

/// A comparison that is not only about what is new: a list that had elements before, or a value of another sort.
pub(super) struct Irregular;

/// What is left out of the text, from one place of the object on.
#[derive(Clone, Copy)]
pub(super) struct Except<'a> {
    /// Fields that are left out with all below them.
    pub ignored: &'a FieldSet,
    /// Fields that are left out themselves.
    pub unowned: &'a FieldSet,
}

/// Adds the JSON of the fields that are in `new` and not in `old`, and answers whether there are any; without any, nothing is added.
pub(super) fn print<S: Shape>(
    of: Type<S>,
    old: &Value,
    new: &Value,
    except: Except<'_>,
    out: &mut String,
) -> Result<bool, Irregular> {
    // Nobody owns the object itself.
    print_node(of, Some(old), new, except, false, out)
}

/// The same for one place of the object. `owned` says whether the place itself can belong to somebody.
fn print_node<S: Shape>(
    of: Type<S>,
    old: Option<&Value>,
    new: &Value,
    except: Except<'_>,
    owned: bool,
    out: &mut String,
) -> Result<bool, Irregular> {
    let form = of.form(new);
    if let Some(old) = old {
        if old == new {
            return Ok(false);
        }
        if of.form(old) != form {
            return Err(Irregular);
        }
    }
    let is_new = old.is_none() && owned;
    match form {
        Form::Scalar => {}
        Form::List => {
            let (before, after) = (old.map_or(&[][..], items), items(new));
            if !(of.is_atomic_list() || before.is_empty() && after.is_empty()) {
                if !before.is_empty() {
                    return Err(Irregular);
                }
                let keys = of.keys();
                let marks = after.iter().map(|item| of.mark(&keys, item).ok().map(|mark| (mark, item)));
                if let Some(marked) = marks.collect() {
                    return print_items(of, marked, except, is_new, out);
                }
            }
        }
        Form::Object | Form::Any => {
            let (before, after) = (old.and_then(members), members(new));
            let is_empty = before.is_none_or(|m| m.is_empty()) && after.is_none_or(|m| m.is_empty());
            if !(of.is_atomic_object() || is_empty) {
                return print_branch(is_new, out, |branch| {
                    for (name, value) in after.into_iter().flatten() {
                        let Some((except, owned)) = except.at_field(name) else { continue };
                        let old = before.and_then(|before| before.get(name));
                        branch.add(
                            |out| {
                                out.push_str("\"f:");
                                json_escaped(name, false, out);
                                out.push('"');
                            },
                            |out| print_node(of.member(name).of, old, value, except, owned, out),
                        )?;
                    }
                    Ok(())
                });
            }
        }
    }
    let is_owned = owned && old.is_none_or(|old| !equal(old, new));
    if is_owned {
        out.push_str("{}");
    }
    Ok(is_owned)
}

/// The elements of a list that had none. Those that share an identity are one piece.
fn print_items<S: Shape>(
    of: Type<S>,
    mut marked: Vec<(Mark<'_>, &Value)>,
    except: Except<'_>,
    is_new: bool,
    out: &mut String,
) -> Result<bool, Irregular> {
    marked.sort_by(|a, b| a.0.cmp(&b.0));
    let mut step = String::new();
    print_branch(is_new, out, |branch| {
        for same in marked.chunk_by(|a, b| a.0 == b.0) {
            let [(mark, item), others @ ..] = same else { continue };
            let Some((except, owned)) = except.at(mark) else { continue };
            step.clear();
            mark.store(&mut step);
            branch.add(
                |out| json_string(&step, false, out),
                |out| match others {
                    [] => print_node(of.item(), None, item, except, owned, out),
                    _ if owned => {
                        out.push_str("{}");
                        Ok(true)
                    }
                    _ => Ok(false),
                },
            )?;
        }
        Ok(())
    })
}

/// A place that is taken apart, while its members are added.
struct Branch<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl Branch<'_> {
    /// Adds one member, unless there is nothing to say of it.
    fn add(
        &mut self,
        name: impl FnOnce(&mut String),
        below: impl FnOnce(&mut String) -> Result<bool, Irregular>,
    ) -> Result<(), Irregular> {
        let start = self.out.len();
        if !self.is_first {
            self.out.push(',');
        }
        name(self.out);
        self.out.push(':');
        if below(self.out)? {
            self.is_first = false;
        } else {
            self.out.truncate(start);
        }
        Ok(())
    }
}

fn print_branch(
    is_new: bool,
    out: &mut String,
    fill: impl FnOnce(&mut Branch<'_>) -> Result<(), Irregular>,
) -> Result<bool, Irregular> {
    let start = out.len();
    out.push_str(if is_new { "{\".\":{}" } else { "{" });
    let opened = out.len();
    fill(&mut Branch { out, is_first: !is_new })?;
    if out.len() > opened {
        out.push('}');
        return Ok(true);
    }
    out.truncate(start);
    // A place without members is written as a leaf.
    out.push_str(if is_new { "{}" } else { "" });
    Ok(is_new)
}

impl<'a> Except<'a> {
    /// What is left out from a member on, and whether the member itself can be owned. `None` if it is ignored.
    fn at_field(self, name: &str) -> Option<(Except<'a>, bool)> {
        self.step(|fields| fields.field(name))
    }

    /// The same for an element of a list.
    fn at(self, mark: &Mark<'_>) -> Option<(Except<'a>, bool)> {
        if self.ignored.is_empty() && self.unowned.is_empty() {
            return Some((self, true));
        }
        let id = mark.element();
        self.step(|fields| fields.get(&id))
    }

    fn step(self, find: impl Fn(&'a FieldSet) -> Option<&'a Node>) -> Option<(Except<'a>, bool)> {
        let (ignored, unowned) = (find(self.ignored), find(self.unowned));
        if ignored.is_some_and(|node| node.member) {
            return None;
        }
        let below = |node: Option<&'a Node>| node.map_or(FieldSet::EMPTY, |node| &node.below);
        let except = Except { ignored: below(ignored), unowned: below(unowned) };
        Some((except, unowned.is_none_or(|node| !node.member)))
    }
}
