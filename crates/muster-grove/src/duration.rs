//! Durations as Go writes them: `4h`, `1m30s`, `1.5h`.

use std::time::Duration;

/// The duration that a text says; `None` when it says none, or one that is negative or beyond a hundred years.
pub fn parse(text: &str) -> Option<Duration> {
    const MOST_SECONDS: f64 = 100.0 * 365.0 * 86_400.0;
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number * scale;
        rest = tail;
    }
    (seconds <= MOST_SECONDS).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(parse(text).map(|d| d.as_millis() as u64), expected, "{text}");
    }

    #[test]
    fn as_go_writes_them() {
        check("4h", Some(14_400_000));
        check("4h0m0s", Some(14_400_000));
        check("1m30s", Some(90_000));
        check("1.5s", Some(1500));
        check("250ms", Some(250));
        check("0", Some(0));
        check("0s", Some(0));
        check("", None);
        check("10", None);
        check("-5s", None);
        check("5 s", None);
        check("5d", None);
        check("1e9h", None);
        check("99999999999h", None);
        check(".s", None);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}") {
            let _ = parse(&text);
        }
    }
}
