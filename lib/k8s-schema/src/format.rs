//! String formats: which ones the API server checks, and how.
//!
//! A format that is not in the list says nothing. Dashes in a format's name do not matter.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::LazyLock,
};

use regex::Regex;

use crate::{Schema, Type};

/// The format that takes part in validation: unknown ones, and those of another type, do not.
pub(crate) fn effective(schema: &Schema) -> Option<&str> {
    let format = schema.format.as_deref().filter(|f| !f.is_empty())?;
    let ty = if schema.int_or_string { Type::Any } else { schema.ty };
    let counts = match ty {
        Type::Any | Type::String => known(format),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        Type::Object | Type::Array | Type::Boolean => false,
    };
    counts.then_some(format)
}

/// Whether strings of this format are checked.
pub(crate) fn known(format: &str) -> bool {
    check(format, "").is_some()
}

/// Whether `text` has the format; `None` if the format is not known.
pub(crate) fn check(format: &str, text: &str) -> Option<bool> {
    let name: String = format.chars().filter(|c| *c != '-').collect();
    Some(match name.as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && sloppy_ip(text),
        "ipv6" => text.contains(':') && is_ipv6(text),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None, false),
        "uuid3" => is_uuid(text, Some('3'), false),
        "uuid4" => is_uuid(text, Some('4'), true),
        "uuid5" => is_uuid(text, Some('5'), true),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => text.len() == 11 && SSN.is_match(text),
        "hexcolor" => is_hex_colour(text),
        "rgbcolor" => RGB.is_match(text),
        "byte" => is_base64(text),
        "password" => true,
        "date" => is_date(text),
        "duration" => parse_duration(text).is_some(),
        "datetime" => is_date_time(text),
        "k8sshortname" => is_short_name(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_label),
        _ => return None,
    })
}

fn regex(source: &str) -> Regex {
    Regex::new(source).expect("the patterns in this file are constants that compile")
}

static SSN: LazyLock<Regex> = LazyLock::new(|| regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static RGB: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    regex(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let c = r"a-zA-Z0-9\p{S}\p{L}";
    regex(&format!(
        r"^([{c}]((-?[{c}]{{0,62}})?)|([{c}](([-{c}]{{0,61}}[{c}])?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    ))
});
static TIME: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static DURATION_PART: LazyLock<Regex> = LazyLock::new(|| regex(r"([0-9]+)\s*([A-Za-zµ]+)"));

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && HOSTNAME.is_match(text)
}

fn is_short_name(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

fn is_label(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| word(*b))
        && bytes.last().is_some_and(|b| word(*b))
        && bytes.iter().all(|b| word(*b) || *b == b'-')
}

/// An absolute URI, or an absolute path as in an HTTP request line.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let rest = match text.find(':').filter(|i| is_scheme(&text[..*i])) {
        Some(colon) => &text[colon + 1..],
        None if text.starts_with('/') => text,
        None => return false,
    };
    let rest = rest.split('?').next().unwrap_or_default();
    if !percent_ok(rest) {
        return false;
    }
    let Some(authority) = rest.strip_prefix("//").filter(|_| !text.starts_with("///")) else { return true };
    let host = authority.split('/').next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let port = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        None => host.find(':').map_or("", |i| &host[i..]),
    };
    let port_ok =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    port_ok && !host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

fn percent_ok(text: &str) -> bool {
    text.split('%').skip(1).all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// The common forms of an address: `a@b`, `<a@b>` and `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        Some(open) => match open.rsplit_once('<') {
            Some((name, address)) if !name.contains(['<', '@', ',']) || name.trim().starts_with('"') => {
                address
            }
            _ => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.strip_prefix('[').and_then(|d| d.strip_suffix(']'));
    let domain_ok = match literal {
        Some(ip) => ip.parse::<Ipv4Addr>().is_ok() || ip.strip_prefix("IPv6:").is_some_and(is_ipv6),
        None => domain.split('.').all(atom),
    };
    domain_ok && (quoted || local.split('.').all(atom))
}

/// IPv4 with leading zeros permitted, or IPv6.
fn sloppy_ip(text: &str) -> bool {
    sloppy_ipv4(text) || is_ipv6(text)
}

fn sloppy_ipv4(text: &str) -> bool {
    let mut n_parts = 0;
    text.split('.').all(|part| {
        n_parts += 1;
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits && part.trim_start_matches('0').len() <= 3 && part.parse::<u64>().is_ok_and(|n| n <= 255)
    }) && n_parts == 4
}

fn is_ipv6(text: &str) -> bool {
    Ipv6Addr::from_str(text).is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((ip, bits)) = text.split_once('/') else { return false };
    let max = if sloppy_ipv4(ip) {
        32
    } else if is_ipv6(ip) {
        128
    } else {
        return false;
    };
    !bits.is_empty()
        && bits.bytes().all(|b| b.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|n| n <= max)
}

/// 6, 8 or 20 bytes in hexadecimal: `aa:bb:..`, `aa-bb-..` or `aabb.ccdd...`.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts.iter().all(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    text.len() <= 60
        && (groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10]))
}

fn is_uuid(text: &str, version: Option<char>, variant: bool) -> bool {
    let mut rest = text;
    for (i, digits) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, tail)) = rest.split_at_checked(digits) else { return false };
        if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        let fits = match i {
            2 => version.is_none_or(|v| group.starts_with(v)),
            3 => !variant || group.starts_with(['8', '9', 'a', 'b', 'A', 'B']),
            _ => true,
        };
        if !fits {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

fn digits_of(text: &str) -> Vec<u32> {
    text.chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != '-')
        .map(|c| c.to_digit(10).unwrap_or(99))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let mut digits = digits_of(text);
    if digits.last() == Some(&99) && text.trim_end().ends_with('X') {
        digits.pop();
        digits.push(10);
    }
    let Some((last, head)) = digits.split_last() else { return false };
    digits.len() == 10
        && head.iter().all(|d| *d < 10)
        && *last <= 10
        && digits.iter().zip(1..).map(|(d, weight)| d * weight).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    digits.len() == 13
        && digits.iter().all(|d| *d < 10)
        && digits.iter().zip([1, 3].into_iter().cycle()).map(|(d, weight)| d * weight).sum::<u32>() % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> =
        text.chars().filter_map(|c| c.to_digit(10).filter(|_| c.is_ascii_digit())).collect();
    let number = |n: usize| digits.iter().take(n).fold(0, |sum, d| sum * 10 + d);
    let issuer = match digits.len() {
        13 => number(1) == 4,
        14 => (300..=305).contains(&number(3)) || matches!(number(2), 36 | 38 | 60..=69 if number(1) == 3),
        15 => matches!(number(2), 34 | 37) || matches!(number(4), 2131 | 1800),
        16 => {
            number(1) == 4
                || (51..=55).contains(&number(2))
                || number(4) == 6011
                || number(2) == 65
                || number(2) == 35
        }
        _ => false,
    };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| if i % 2 == 0 { *d } else { d * 2 / 10 + d * 2 % 10 })
        .sum();
    issuer && sum.is_multiple_of(10)
}

fn is_hex_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Standard alphabet with padding; the empty string is not base64 here.
fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() })
        && jiff::civil::Date::from_str(text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut halves = lower.split('t');
    let (Some(date), Some(time)) = (halves.next(), halves.next()) else { return false };
    let Some(parts) = TIME.captures(time) else { return false };
    let at_most = |i: usize, max: &str| parts.get(i).is_some_and(|p| p.as_str() <= max);
    is_date(date) && at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}

/// Nanoseconds of a Go duration (`1h30m`) or of the longer spelling with days and weeks (`3 days`).
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    go_duration(text).or_else(|| {
        let mut total: i64 = 0;
        let mut any = false;
        for part in DURATION_PART.captures_iter(text) {
            let factor: i64 = part.get(1)?.as_str().parse().ok()?;
            let unit = part.get(2)?.as_str().to_lowercase();
            for (nanos, exact, prefix) in LONG_UNITS {
                if exact.contains(&unit.as_str()) || unit.starts_with(prefix) {
                    any = true;
                    total = total.wrapping_add(factor.wrapping_mul(*nanos));
                }
            }
        }
        any.then_some(total)
    })
}

const SECOND: i64 = 1_000_000_000;
/// Nanoseconds, exact names, and the name that may go on.
const LONG_UNITS: &[(i64, &[&str], &str)] = &[
    (1, &["ns"], "nano"),
    (1_000, &["us", "µs"], "micro"),
    (1_000_000, &["ms"], "milli"),
    (SECOND, &["s"], "sec"),
    (60 * SECOND, &["m"], "min"),
    (3600 * SECOND, &["h", "hr"], "hour"),
    (86_400 * SECOND, &["d"], "day"),
    (7 * 86_400 * SECOND, &["w", "wk"], "week"),
];

/// Nanoseconds of a Go duration such as `-1.5h` or `1m30s`.
pub(crate) fn go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, tail) = rest.split_at(whole_len);
        let (fraction, tail) = match tail.strip_prefix('.') {
            Some(tail) => tail.split_at(tail.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", tail),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_len = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(nanos)?)?;
        // Further digits than these are below a nanosecond.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            total += fraction.parse::<i128>().ok()? * nanos / 10_i128.pow(fraction.len() as u32);
        }
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn all(format: &str, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check(format, text), Some(true), "{format} {text:?}");
        }
        for text in bad {
            assert_eq!(check(format, text), Some(false), "{format} {text:?}");
        }
    }

    #[test]
    fn formats() {
        all(
            "date-time",
            &["2024-02-29T10:00:00Z", "2024-01-01t10:00:00.5+01:00"],
            &["", "2024-01-01", "2023-02-29T10:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T10:00:00"],
        );
        all("date", &["2024-02-29"], &["2023-02-29", "2024-2-9", "+2024-02-2"]);
        all("duration", &["1h", "1.5h", "-3ms", "3 days", "2w", "0"], &["", "h", "1", "3 moons"]);
        all("ipv4", &["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], &["1.2.3", "256.1.1.1", "::1", ""]);
        all("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":::1", ""]);
        all("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+1", "x/8"]);
        all(
            "mac",
            &["aa:bb:cc:dd:ee:ff", "aabb.ccdd.eeff", "AA-BB-CC-DD-EE-FF"],
            &["aa:bb", "aa:bb:cc:dd:ee:fg", ""],
        );
        all(
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
            &["", "123e4567-e89b-12d3-a456-42661417400"],
        );
        all(
            "uuid4",
            &["123e4567-e89b-42d3-a456-426614174000"],
            &["123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-42d3-c456-426614174000"],
        );
        all("byte", &["aGk=", "aGVs"], &["", "aGk", "aG k=", "====", "a==="]);
        all("hostname", &["a", "example.com", "a-b.example.com"], &["", "-a", "a..b", "a_b"]);
        all("uri", &["http://a/b", "/x", "mailto:x"], &["", "a/b", "http://[::1", "http://a:b/", "/%zz"]);
        all("email", &["a@b.c", "Bob <a@b.c>"], &["", "a", "@b", "a@", "a b@c"]);
        all("isbn10", &["0321751043"], &["0321751042", ""]);
        all("isbn13", &["978-0321751041"], &["978-0321751042", ""]);
        all("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", ""]);
        all("ssn", &["111-22-3333"], &["111223333", ""]);
        all("hexcolor", &["#fff", "00FF00"], &["#ff", "#ggg"]);
        all("rgbcolor", &["rgb(0, 255,12)"], &["rgb(256,0,0)", "rgb(0,0)"]);
        all("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]);
        all("k8s-short-name", &["a-1"], &["A", "-a", "a.b", ""]);
        all("k8s-long-name", &["a.b-c"], &["a..b", "A"]);
        all("password", &["", "x"], &[]);
        assert_eq!(check("int-or-string", "x"), None);
    }
}
