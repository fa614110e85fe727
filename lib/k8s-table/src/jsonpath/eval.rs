//! Following paths. In: steps and values. Out: the values they lead to, borrowed, in order.

use std::cmp::Ordering;

use serde_json::Value;

use super::{JsonPathError, SliceEnd, Step};

/// How many values one evaluation may touch. Unions and recursive descents multiply, so a short path over a large
/// object could otherwise go on for hours.
const MAX_VISITS: usize = 1_000_000;

/// Follows steps, and counts the values it touches.
pub(super) struct Evaluator {
    n_visits_left: usize,
}

type Found<'a> = Result<Vec<&'a Value>, JsonPathError>;

impl Evaluator {
    pub(super) fn new() -> Self {
        Evaluator { n_visits_left: MAX_VISITS }
    }

    pub(super) fn follow<'a>(&mut self, steps: &'a [Step], start: Vec<&'a Value>) -> Found<'a> {
        steps.iter().try_fold(start, |values, step| self.step(step, values))
    }

    fn step<'a>(&mut self, step: &'a Step, values: Vec<&'a Value>) -> Found<'a> {
        self.visit(values.len())?;
        match step {
            Step::Field(name) => {
                Ok(values.into_iter().filter_map(|value| value.as_object()?.get(name)).collect())
            }
            Step::Wildcard => {
                let mut found = Vec::new();
                for value in values {
                    self.push_children(value, &mut found)?;
                }
                Ok(found)
            }
            Step::Recursive => self.descend(values),
            Step::Slice { from, to, step } => self.slice(values, *from, *to, *step),
            Step::Union(parts) => {
                let mut found = Vec::new();
                for part in parts {
                    let more = self.follow(part, values.clone())?;
                    self.visit(more.len())?;
                    found.extend(more);
                }
                Ok(found)
            }
            Step::Filter { left, operator, right } => {
                self.filter(values, |evaluator, item| evaluator.compare(item, left, operator, right))
            }
            Step::Exists(steps) => self.filter(values, |evaluator, item| {
                match evaluator.follow(steps, vec![item]) {
                    Ok(found) => Ok(!found.is_empty()),
                    Err(JsonPathError::TooLarge) => Err(JsonPathError::TooLarge),
                    // The server takes an error on the way for a sign of presence.
                    Err(_) => Ok(true),
                }
            }),
            Step::Text(text) => Ok(vec![text]),
            Step::Constant(constant) => Ok(vec![constant; values.len()]),
            Step::Identifier(word) => Err(JsonPathError::UnknownIdentifier(word.clone())),
        }
    }

    /// The values and everything in them, parents first. Plain values but text are left out, and so are empty ones.
    fn descend<'a>(&mut self, values: Vec<&'a Value>) -> Found<'a> {
        let mut found = Vec::new();
        let mut waiting: Vec<&Value> = values.into_iter().rev().collect();
        while let Some(value) = waiting.pop() {
            self.visit(1)?;
            let first_child = waiting.len();
            self.push_children(value, &mut waiting)?;
            let has_text = value.as_str().is_some_and(|text| !text.is_empty());
            if has_text || waiting.len() > first_child {
                found.push(value);
            }
            waiting[first_child..].reverse();
        }
        Ok(found)
    }

    fn slice<'a>(
        &mut self,
        values: Vec<&'a Value>,
        from: Option<i64>,
        to: SliceEnd,
        step: Option<i64>,
    ) -> Found<'a> {
        let mut found = Vec::new();
        for value in values.into_iter().filter(|value| !value.is_null()) {
            let list = value.as_array().ok_or(JsonPathError::NotAList)?;
            let length = list.len() as i64;
            let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
            let first = from_end(from.unwrap_or(0));
            let end = match to {
                // `[-1]` ends just after the last element, which counted from the end would be zero.
                SliceEnd::Single => match from.unwrap_or(0).saturating_add(1) {
                    after @ ..=0 => after.saturating_add(length),
                    after => after,
                },
                SliceEnd::Open => length,
                SliceEnd::At(end) => from_end(end),
            };
            if first == end {
                return Ok(found);
            }
            let outside = |index| JsonPathError::OutOfBounds { index, length: list.len() };
            if !(0..length).contains(&first) {
                return Err(outside(first));
            }
            if !(0..=length).contains(&end) {
                return Err(outside(end.saturating_sub(1)));
            }
            let step = step.unwrap_or(1);
            if first > end || step <= 0 {
                return Err(JsonPathError::BadSlice { from: first, to: end, step });
            }
            // All three are within the length of a list by now, or are a step that only leaps over its end.
            let taken = list.get(first as usize..end as usize).unwrap_or_default();
            self.visit(taken.len())?;
            found.extend(taken.iter().step_by(usize::try_from(step).unwrap_or(usize::MAX)));
        }
        Ok(found)
    }

    fn filter<'a>(
        &mut self,
        values: Vec<&'a Value>,
        mut keeps: impl FnMut(&mut Self, &'a Value) -> Result<bool, JsonPathError>,
    ) -> Found<'a> {
        let mut found = Vec::new();
        for value in values {
            for item in value.as_array().ok_or(JsonPathError::NotAList)? {
                self.visit(1)?;
                if keeps(self, item)? {
                    found.push(item);
                }
            }
        }
        Ok(found)
    }

    fn compare<'a>(
        &mut self,
        item: &'a Value,
        left: &'a [Step],
        operator: &str,
        right: &'a [Step],
    ) -> Result<bool, JsonPathError> {
        let mut sides = [None; 2];
        for (side, steps) in sides.iter_mut().zip([left, right]) {
            match self.follow(steps, vec![item])?.as_slice() {
                [] => return Ok(false),
                [value] => *side = Some(*value),
                _ => return Err(JsonPathError::ManyValues),
            }
        }
        let [Some(left), Some(right)] = sides else { return Ok(false) };
        // Truth values are equal or not, but none comes first.
        let is_order = !matches!(operator, "==" | "!=");
        let order = match (Plain::of(left)?, Plain::of(right)?) {
            (Plain::Bool(_), Plain::Bool(_)) if is_order => return Err(JsonPathError::Incomparable),
            (Plain::Bool(left), Plain::Bool(right)) => left.cmp(&right),
            (Plain::Integer(left), Plain::Integer(right)) => left.cmp(&right),
            (Plain::Float(left), Plain::Float(right)) => {
                left.partial_cmp(&right).ok_or(JsonPathError::Incomparable)?
            }
            (Plain::Text(left), Plain::Text(right)) => left.cmp(right),
            _ => return Err(JsonPathError::Incomparable),
        };
        match operator {
            "==" => Ok(order == Ordering::Equal),
            "!=" => Ok(order != Ordering::Equal),
            "<" => Ok(order == Ordering::Less),
            "<=" => Ok(order != Ordering::Greater),
            ">" => Ok(order == Ordering::Greater),
            ">=" => Ok(order != Ordering::Less),
            other => Err(JsonPathError::UnknownOperator(other.to_owned())),
        }
    }

    fn push_children<'a>(
        &mut self,
        value: &'a Value,
        found: &mut Vec<&'a Value>,
    ) -> Result<(), JsonPathError> {
        match value {
            Value::Array(items) => {
                self.visit(items.len())?;
                found.extend(items);
            }
            Value::Object(fields) => {
                self.visit(fields.len())?;
                found.extend(fields.values());
            }
            _ => {}
        }
        Ok(())
    }

    fn visit(&mut self, n_values: usize) -> Result<(), JsonPathError> {
        // One for the step itself, so that steps over nothing are counted too.
        let left = self.n_visits_left.checked_sub(n_values.saturating_add(1));
        self.n_visits_left = left.ok_or(JsonPathError::TooLarge)?;
        Ok(())
    }
}

/// A value that can be compared.
enum Plain<'a> {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(&'a str),
}

impl<'a> Plain<'a> {
    fn of(value: &'a Value) -> Result<Self, JsonPathError> {
        match value {
            Value::Bool(flag) => Ok(Plain::Bool(*flag)),
            Value::String(text) => Ok(Plain::Text(text)),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Ok(Plain::Integer(integer)),
                (None, Some(float)) => Ok(Plain::Float(float)),
                (None, None) => Err(JsonPathError::Incomparable),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => Err(JsonPathError::Incomparable),
        }
    }
}
