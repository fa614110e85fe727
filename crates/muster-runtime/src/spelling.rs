//! How far one word is from another, to say what a misspelt one may have meant.
//!
//! In: a word and the words that exist. Out: the nearest one, if it is near. Must stay true: long words cost nothing: what
//! differs much in length is never compared.

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; `None` when more than `most`.
pub fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > most || a.len().max(b.len()) > LONGEST {
        return None;
    }
    // Three rows of the table: the one before the last is for swaps.
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, y) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                cost = cost.min(before[j - 1] + 1);
            }
            row[j + 1] = cost;
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|cost| *cost <= most)
}

/// A name with its prefix has at most 253 + 1 + 63 characters.
const LONGEST: usize = 320;

/// The nearest of the words, if it is near enough to be what was meant.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let mut best: Option<(usize, &str)> = None;
    for candidate in words {
        // One slip in three letters is a typing error, more is another word.
        let most = (candidate.len() / 3).clamp(1, 3);
        if let Some(cost) = distance(&folded, &fold(candidate), most)
            && best.is_none_or(|(least, _)| cost < least)
        {
            best = Some((cost, candidate));
        }
    }
    best.map(|(_, word)| word)
}

/// Case and the choice of separator are no difference.
pub fn fold(word: &str) -> String {
    word.chars().map(|c| if matches!(c, '_' | ' ' | '.') { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, expected: Option<usize>) {
        assert_eq!(distance(a, b, 3), expected, "{a} {b}");
        assert_eq!(distance(b, a, 3), expected, "{b} {a}");
    }

    #[test]
    fn distances() {
        check("", "", Some(0));
        check("", "abc", Some(3));
        check("queue", "queue", Some(0));
        check("queue", "qeuue", Some(1));
        check("queue", "queu", Some(1));
        check("queue", "quue", Some(1));
        check("topology", "topolgoy", Some(1));
        check("topology", "tpoolgoy", Some(2));
        check("queue", "topology", None);
        check("a", "abcde", None);
    }

    #[test]
    fn finds_what_was_meant() {
        let words = ["topology", "queue", "gpu-fraction", "gpu-memory"];
        assert_eq!(nearest("toplogy", words), Some("topology"));
        assert_eq!(nearest("GPU_Fraction", words), Some("gpu-fraction"));
        assert_eq!(nearest("gpu-mem", words), Some("gpu-memory"));
        assert_eq!(nearest("banana", words), None);
        assert_eq!(nearest("", words), None);
    }

    proptest! {
        #[test]
        fn is_a_distance(a in "[a-c]{0,8}", b in "[a-c]{0,8}") {
            let ab = distance(&a, &b, 20);
            prop_assert_eq!(ab, distance(&b, &a, 20));
            prop_assert_eq!(ab == Some(0), a == b);
            prop_assert!(ab.unwrap() <= a.len().max(b.len()));
        }

        #[test]
        fn no_text_panics(a in ".{0,400}", b in ".{0,400}") {
            distance(&a, &b, 3);
            nearest(&a, [b.as_str()]);
        }
    }
}
