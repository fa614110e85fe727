//! String functions that the function library lacks or has differently. Places are counted in characters.

use std::sync::Arc;

use kube_cel::cel::Value as Cel;

use super::{eval::Failure, value::Val};

/// Calls `charAt`, `substring`, `split` or `replace`.
pub(crate) fn call<'a>(name: &str, text: &str, args: &[&Cel]) -> Result<Val<'a>, Failure> {
    match (name, args) {
        ("charAt", [Cel::Int(i)]) => {
            let n_chars = text.chars().count();
            match usize::try_from(*i) {
                Ok(i) if i <= n_chars => Ok(Val::string(text.chars().skip(i).take(1).collect::<String>())),
                _ => Err(out_of_range(*i)),
            }
        }
        ("substring", [Cel::Int(start)]) => substring(text, *start, None),
        ("substring", [Cel::Int(start), Cel::Int(end)]) => substring(text, *start, Some(*end)),
        ("split", [Cel::String(separator)]) => Ok(split(text, separator, -1)),
        ("split", [Cel::String(separator), Cel::Int(n)]) => Ok(split(text, separator, *n)),
        ("replace", [Cel::String(from), Cel::String(to)]) => Ok(replace(text, from, to, -1)),
        ("replace", [Cel::String(from), Cel::String(to), Cel::Int(n)]) => Ok(replace(text, from, to, *n)),
        _ => Err(Failure::NoSuchOverload),
    }
}

fn out_of_range(i: i64) -> Failure {
    Failure::Other(format!("index out of range: {i}"))
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> Result<Val<'a>, Failure> {
    let n_chars = text.chars().count();
    let place = |i: i64| usize::try_from(i).ok().filter(|i| *i <= n_chars).ok_or_else(|| out_of_range(i));
    let from = place(start)?;
    let to = end.map_or(Ok(n_chars), place)?;
    if from > to {
        let text = format!("invalid substring range. start: {from}, end: {to}");
        return Err(Failure::Other(text));
    }
    Ok(Val::string(text.chars().skip(from).take(to - from).collect::<String>()))
}

/// At most `n` parts, all if `n` is negative; an empty separator splits into characters.
fn split<'a>(text: &str, separator: &str, n: i64) -> Val<'a> {
    let limit = usize::try_from(n).unwrap_or(usize::MAX);
    let parts: Vec<String> = match (limit, separator) {
        (0, _) => Vec::new(),
        (_, "") => {
            let mut parts: Vec<String> = text.chars().map(String::from).collect();
            if parts.len() > limit {
                let rest = parts.split_off(limit - 1).concat();
                parts.push(rest);
            }
            parts
        }
        _ => text.splitn(limit, separator).map(str::to_owned).collect(),
    };
    Val::List(Arc::new(parts.into_iter().map(Val::string).collect()))
}

/// At most `n` replacements, all if `n` is negative; an empty `from` is found between all characters.
fn replace<'a>(text: &str, from: &str, to: &str, n: i64) -> Val<'a> {
    Val::string(text.replacen(from, to, usize::try_from(n).unwrap_or(usize::MAX)))
}
