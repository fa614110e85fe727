//! Sets of completion indexes.
//!
//! In and out: the text form `0-2,5` and the set. Must stay true: reading back what was written gives the same set;
//! no text makes a set larger than the number of completions that it is read for.

use std::collections::BTreeSet;

pub type Indexes = BTreeSet<i64>;

/// Reads `0-2,5`; what is not below `limit` or cannot be read is left out.
pub fn parse(text: &str, limit: i64) -> Indexes {
    let mut out = Indexes::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<i64>(), to.trim().parse::<i64>()) {
            out.extend(from.max(0)..=to.min(limit.saturating_sub(1)));
        }
    }
    out
}

/// Runs of three and more are written as a range, two neighbours as two numbers.
pub fn print(indexes: &Indexes) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut run: Option<(i64, i64)> = None;
    let flush = |run: Option<(i64, i64)>, parts: &mut Vec<String>| match run {
        Some((from, to)) if from == to => parts.push(from.to_string()),
        Some((from, to)) if from + 1 == to => parts.push(format!("{from},{to}")),
        Some((from, to)) => parts.push(format!("{from}-{to}")),
        None => {}
    };
    for index in indexes {
        run = match run {
            Some((from, to)) if to + 1 == *index => Some((from, *index)),
            other => {
                flush(other, &mut parts);
                Some((*index, *index))
            }
        };
    }
    flush(run, &mut parts);
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, limit: i64, expected: &str) {
        assert_eq!(print(&parse(text, limit)), expected, "{text}");
    }

    #[test]
    fn texts() {
        check("", 10, "");
        check("0", 10, "0");
        check("0,1", 10, "0,1");
        check("0-2,5", 10, "0-2,5");
        check("1,3-4,9", 9, "1,3,4");
        check("0-9223372036854775807", 3, "0-2");
        check("x,5-3,7", 10, "7");
    }

    proptest! {
        #[test]
        fn reads_what_it_writes(set in prop::collection::btree_set(0i64..60, 0..40)) {
            prop_assert_eq!(parse(&print(&set), 60), set);
        }
    }
}
