//! Regular expressions as the API server understands them: Go's RE2 syntax on top of the `regex` crate.
//!
//! The two languages are close. What differs is rewritten (`\d`, `\w` and `\s` are ASCII in Go, brackets inside of a class are
//! plain characters, `\Q...\E` quotes), and what Go refuses is refused with its words as far as they are known. Compiled
//! size is bounded.

use std::{cell::RefCell, collections::BTreeMap};

/// Largest compiled expression, in bytes.
const SIZE_LIMIT: usize = 4 << 20;
/// Deepest nesting of groups.
const NEST_LIMIT: u32 = 250;
/// Go's limit for `{n}`.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern; the error starts with `error parsing regexp:`.
pub(crate) fn compile(source: &str) -> Result<regex::Regex, String> {
    let rewritten = rewrite(source).map_err(|why| format!("error parsing regexp: {why}"))?;
    regex::RegexBuilder::new(&rewritten)
        .size_limit(SIZE_LIMIT)
        .nest_limit(NEST_LIMIT)
        .build()
        .map_err(|error| format!("error parsing regexp: {}", reason(&error, source)))
}

/// As [`compile`], for patterns that come up again and again while a rule runs.
pub(crate) fn cached(source: &str) -> Result<regex::Regex, String> {
    const MAX_PATTERNS: usize = 64;
    thread_local! {
        static PATTERNS: RefCell<BTreeMap<String, regex::Regex>> = RefCell::default();
    }
    PATTERNS.with_borrow_mut(|patterns| {
        if let Some(regex) = patterns.get(source) {
            return Ok(regex.clone());
        }
        let regex = compile(source)?;
        if patterns.len() >= MAX_PATTERNS {
            patterns.clear();
        }
        patterns.insert(source.to_owned(), regex.clone());
        Ok(regex)
    })
}

fn reason(error: &regex::Error, source: &str) -> String {
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return "expression too large".to_owned();
    }
    let text = error.to_string();
    let known = [
        ("unclosed group", "missing closing )"),
        ("unopened group", "unexpected )"),
        ("unclosed character class", "missing closing ]"),
        ("repetition operator missing expression", "missing argument to repetition operator"),
        ("invalid character class range", "invalid character class range"),
        ("repetition quantifier", "invalid repeat count"),
        ("look-around", "invalid or unsupported Perl syntax"),
        ("flag", "invalid or unsupported Perl syntax"),
        ("capture group name", "invalid named capture"),
        ("exceeded the maximum number of nested", "expression nests too deeply"),
        ("Unicode property", "invalid character class range"),
    ];
    let words =
        known.iter().find(|(theirs, _)| text.contains(theirs)).map_or("invalid syntax", |(_, ours)| ours);
    format!("{words}: `{source}`")
}

fn rewrite(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + 16);
    let mut class_open = None;
    let mut at = 0;
    // Where the repetition operator before this one started; a `?` after it only makes it lazy.
    let mut repeat: Option<(usize, bool)> = None;
    // How often the last atom, and the inside of each open group, is already repeated by counts within counts.
    let mut atom = 1_u32;
    let mut groups = vec![1_u32];
    // `rest` starts at the next character; each round moves `at` past what it dealt with.
    while let Some(rest) = source.get(at..).filter(|rest| !rest.is_empty()) {
        let c = rest.chars().next().unwrap_or_default();
        let in_class = class_open.is_some();
        let mut taken = c.len_utf8();
        let before = repeat.take();
        let last_atom = std::mem::replace(&mut atom, 1);
        match c {
            '*' | '+' | '?' if !in_class => {
                atom = last_atom;
                out.push(c);
                match before {
                    Some((start, false)) if c == '?' => repeat = Some((start, true)),
                    Some((start, _)) => return Err(nested_repeat(&source[start..=at])),
                    None => repeat = Some((at, false)),
                }
            }
            '\\' => taken = backslash(rest, in_class, &mut out)?,
            '[' if !in_class => {
                class_open = Some(at);
                let negated = rest.starts_with("[^");
                out.push_str(if negated { "[^" } else { "[" });
                taken += usize::from(negated);
                // A bracket that comes first is a plain character.
                if rest[taken..].starts_with(']') {
                    out.push_str("\\]");
                    taken += 1;
                }
            }
            '[' => match posix_class(rest) {
                Some(name) => {
                    out.push_str(name);
                    taken = name.len();
                }
                None => out.push_str("\\["),
            },
            ']' if in_class => {
                class_open = None;
                out.push(']');
            }
            // Set operators of the `regex` crate are plain characters in Go.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.starts_with("--") => out.push_str("\\-"),
            '(' if !in_class && rest.starts_with("(?") => {
                let refused = ["(?=", "(?!", "(?<=", "(?<!", "(?#", "(?>", "(?x"];
                if let Some(start) = refused.iter().find(|start| rest.starts_with(**start)) {
                    return Err(format!("invalid or unsupported Perl syntax: `{}`", &start[..3]));
                }
                out.push('(');
                groups.push(1);
            }
            '(' if !in_class => {
                out.push('(');
                groups.push(1);
            }
            ')' if !in_class => {
                out.push(')');
                atom = groups.pop().unwrap_or(1);
                if let Some(group) = groups.last_mut() {
                    *group = atom.max(*group);
                }
            }
            '{' if !in_class => match repeat_of(rest) {
                Some((min, max, text)) => {
                    if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || max < min) {
                        return Err(format!("invalid repeat count: `{text}`"));
                    }
                    if let Some((start, _)) = before {
                        return Err(nested_repeat(&source[start..at + text.len()]));
                    }
                    atom = last_atom.saturating_mul(max.unwrap_or(min).max(1));
                    if atom > MAX_REPEAT {
                        return Err(format!("invalid repeat count: `{text}`"));
                    }
                    if let Some(group) = groups.last_mut() {
                        *group = atom.max(*group);
                    }
                    out.push_str(text);
                    taken = text.len();
                    repeat = Some((at, false));
                }
                // Braces that are no repetition are plain characters.
                None => out.push_str("\\{"),
            },
            '}' if !in_class => out.push_str("\\}"),
            c => out.push(c),
        }
        at += taken;
    }
    match class_open {
        Some(open) => Err(format!("missing closing ]: `{}`", &source[open..])),
        None => Ok(out),
    }
}

fn nested_repeat(text: &str) -> String {
    format!("invalid nested repetition operator: `{text}`")
}

/// An escape at the start of `rest`: writes what it means and returns its length.
fn backslash(rest: &str, in_class: bool, out: &mut String) -> Result<usize, String> {
    let Some(c) = rest.chars().nth(1) else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    match c {
        'Q' => {
            let body = rest[2..].split("\\E").next().unwrap_or_default();
            out.push_str(&regex::escape(body));
            let closing = if body.len() + 2 < rest.len() { 2 } else { 0 };
            Ok(2 + body.len() + closing)
        }
        'p' | 'P' | 'x' if rest[2..].starts_with('{') => {
            let window = &rest[..floor_boundary(rest, 64)];
            let Some(end) = window.find('}') else { return Err(format!("invalid escape sequence: `\\{c}`")) };
            out.push_str(&rest[..=end]);
            Ok(end + 1)
        }
        c => {
            escape(c, in_class, out)?;
            Ok(1 + c.len_utf8())
        }
    }
}

/// `[:name:]` at the start of `rest`.
fn posix_class(rest: &str) -> Option<&str> {
    let window = &rest[..floor_boundary(rest, 16)];
    window.strip_prefix("[:")?;
    let end = window.find(":]")?;
    window.get(..end + 2)
}

/// The largest place not beyond `max` where a character ends.
fn floor_boundary(text: &str, max: usize) -> usize {
    (0..=max.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

/// `{2}`, `{2,}` or `{2,3}` at the start of `text`.
fn repeat_of(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let end = text[..floor_boundary(text, 32)].find('}')?;
    let body = text.get(1..end)?;
    let number = |digits: &str| {
        (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
            .then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let whole = text.get(..=end)?;
    match body.split_once(',') {
        None => number(body).map(|n| (n, None, whole)),
        Some((min, "")) => number(min).map(|n| (n, None, whole)),
        Some((min, max)) => Some((number(min)?, Some(number(max)?), whole)),
    }
}

fn escape(c: char, in_class: bool, out: &mut String) -> Result<(), String> {
    let (set, negated) = match c {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => ("\\t\\n\\f\\r ", false),
        'S' => ("\\t\\n\\f\\r ", true),
        _ => {
            let known = matches!(
                c,
                'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'x' | 'p' | 'P' | 'A' | 'z' | 'b' | 'B' | '0'..='7'
            );
            if c.is_ascii_alphanumeric() && !known || !c.is_ascii() {
                return Err(format!("invalid escape sequence: `\\{c}`"));
            }
            match c {
                'b' if !in_class => out.push_str("(?-u:\\b)"),
                '<' | '>' => out.push(c),
                '0'..='7' => return Err(format!("invalid escape sequence: `\\{c}`")),
                _ => {
                    out.push('\\');
                    out.push(c);
                }
            }
            return Ok(());
        }
    };
    match (in_class, negated) {
        (true, false) => out.push_str(set),
        (_, true) => {
            out.push_str("[^");
            out.push_str(set);
            out.push(']');
        }
        (false, false) => {
            out.push('[');
            out.push_str(set);
            out.push(']');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[track_caller]
    fn check(pattern: &str, good: &[&str], bad: &[&str]) {
        let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        for text in good {
            assert!(regex.is_match(text), "{pattern} {text:?}");
        }
        for text in bad {
            assert!(!regex.is_match(text), "{pattern} {text:?}");
        }
    }

    #[test]
    fn like_go() {
        check(r"^\d+$", &["12"], &["٣", "a", ""]);
        check(r"^[\w.-]+$", &["a_b.c-d"], &["é", " "]);
        check(r"^[\D]$", &["a"], &["1"]);
        check(r"^[[a]b]$", &["[b]", "ab]"], &["a", "b"]);
        check(r"^[]a]$", &["]", "a"], &["b"]);
        check(r"^[^]a]$", &["b"], &["]", "a"]);
        check(r"^[a&&b]$", &["&", "a"], &["ab"]);
        check(r"^[[:alpha:]]+$", &["ab"], &["1"]);
        check(r"^a{2,3}$", &["aa"], &["a"]);
        check(r"^a{x}$", &["a{x}"], &["a"]);
        check(r"^\p{L}\/\.$", &["é/."], &[]);
        check(r"^\Qa.b\E+$", &["a.b", "a.bb"], &["axb"]);
        check(r"(?i)^ab$", &["AB"], &["abc"]);
        check(r"^([0-9]+(\.[0-9]+)?(s|m|h))+$", &["1.5h3m"], &["1"]);
        check(r"\x{41}", &["A"], &["B"]);
        check("", &["", "x"], &[]);
    }

    #[test]
    fn refused_like_go() {
        for (pattern, why) in [
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*?+", "invalid nested repetition operator: `*?+`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            ("((a{40}|b)*c){40}", "invalid repeat count: `{40}`"),
            ("a(b", "missing closing ): `a(b`"),
            ("a)b", "unexpected ): `a)b`"),
            ("[a", "missing closing ]: `[a`"),
            (r"\y", r"invalid escape sequence: `\y`"),
        ] {
            assert_eq!(compile(pattern).unwrap_err(), format!("error parsing regexp: {why}"));
        }
        assert!(compile(&"(".repeat(100_000)).is_err());
        assert!(compile("((((a{1000}){1000}){1000}){1000})").is_err());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(pattern in r"[a-c\\dQEx{}\[\]()?*+^$|.,:&~é0-9-]{0,24}") {
            let _ = compile(&pattern);
        }
    }
}
