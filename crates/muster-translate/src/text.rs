//! Values that Kubernetes writes as text: times, lengths of time, decimals, and amounts of resources.

use k8s_quantity::Quantity;
use muster_model::{Resource, Span, Time};

/// Amounts beyond this are absurd in any unit, and the engine's sums stay exact below it.
pub(crate) const MOST: i64 = 1 << 53;

/// RFC 3339.
pub(crate) fn time(text: &str) -> Option<Time> {
    text.parse::<jiff::Timestamp>().ok().map(|t| Time(t.as_millisecond()))
}

/// The notation of Go: `1h30m`, `250ms`, `-1s`, `0`. Parts of a millisecond are dropped; a length beyond the range holds at its end.
pub(crate) fn duration(text: &str) -> Option<Span> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Span::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit_end)?;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        nanos = nanos.saturating_add(digits(whole).saturating_mul(unit));
        // Twelve digits are finer than a nanosecond of an hour.
        let fraction: String = fraction.chars().take(12).collect();
        let scale = 10_i128.pow(u32::try_from(fraction.len()).unwrap_or(12));
        nanos = nanos.saturating_add(digits(&fraction).saturating_mul(unit) / scale);
        rest = tail;
    }
    let millis = (nanos / 1_000_000).min(i128::from(i64::MAX));
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Some(Span(if negative { -millis } else { millis }))
}

fn digits(text: &str) -> i128 {
    text.bytes()
        .fold(0_i128, |n, digit| n.saturating_mul(10).saturating_add(i128::from(digit.saturating_sub(b'0'))))
}

/// Which resource a name means. Names that end in `gpu` are GPUs, whoever made them.
pub(crate) fn resource(name: &str) -> Resource {
    match name {
        "cpu" => Resource::Cpu,
        "memory" => Resource::Memory,
        "pods" => Resource::Pods,
        // Koordinator counts this one in hundredths, beside the GPUs that it is made of.
        "koordinator.sh/gpu" => Resource::Other(name.into()),
        name if name.ends_with("gpu") => Resource::Gpu,
        name => Resource::Other(name.into()),
    }
}

/// Which way a part of a unit goes: what is asked for is rounded up, what there is is rounded down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// The amount in the resource's unit, or what is wrong with it.
pub(crate) fn amount(
    resource: &Resource,
    quantity: Quantity,
    rounding: Rounding,
) -> Result<i64, &'static str> {
    let unit: i128 = match resource {
        Resource::Cpu | Resource::Gpu => 1_000_000,
        Resource::Memory | Resource::Pods | Resource::Other(_) => 1_000_000_000,
    };
    let nano = quantity.nano();
    if nano < 0 {
        return Err("is negative; write 0 or more");
    }
    let whole = nano / unit + i128::from(rounding == Rounding::Up && nano % unit != 0);
    i64::try_from(whole)
        .ok()
        .filter(|n| *n <= MOST)
        .ok_or("is more than 2^53 units, which no machine has; write what is meant")
}

/// A decimal number as thousandths, rounded up; exact text, no floats on the way.
pub(crate) fn thousandths(text: &str) -> Option<i64> {
    let plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e' | b'E'));
    let quantity: Quantity = if plain { text.parse().ok()? } else { return None };
    Some(quantity.milli_value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_duration(text: &str, millis: Option<i64>) {
        assert_eq!(duration(text), millis.map(Span), "{text}");
    }

    #[test]
    fn durations() {
        check_duration("60s", Some(60_000));
        check_duration("1h30m", Some(5_400_000));
        check_duration("1.5s", Some(1_500));
        check_duration(".5s", Some(500));
        check_duration("250ms", Some(250));
        check_duration("-1s", Some(-1_000));
        check_duration("0", Some(0));
        check_duration("0s", Some(0));
        check_duration("1µs", Some(0));
        check_duration("", None);
        check_duration("-", None);
        check_duration("5", None);
        check_duration("s", None);
        check_duration("1.2.3s", None);
        check_duration("1d", None);
        check_duration("1s ", None);
        check_duration(&"9".repeat(300).to_string(), None);
        check_duration(&format!("{}h", "9".repeat(300)), Some(i64::MAX));
        check_duration("１s", None);
    }

    #[track_caller]
    fn check_amount(name: &str, quantity: &str, rounding: Rounding, expected: Option<i64>) {
        let quantity = quantity.parse().unwrap();
        assert_eq!(amount(&resource(name), quantity, rounding).ok(), expected, "{name} {quantity}");
    }

    #[test]
    fn amounts_are_in_the_unit_of_their_resource() {
        check_amount("cpu", "1.5", Rounding::Up, Some(1500));
        check_amount("cpu", "1.0001", Rounding::Up, Some(1001));
        check_amount("cpu", "1.0001", Rounding::Down, Some(1000));
        check_amount("memory", "1G", Rounding::Up, Some(1_000_000_000));
        check_amount("nvidia.com/gpu", "2", Rounding::Up, Some(2000));
        check_amount("amd.com/gpu", "1", Rounding::Up, Some(1000));
        check_amount("nvidia.com/mig-1g.10gb", "3", Rounding::Up, Some(3));
        check_amount("cpu", "-1", Rounding::Up, None);
        check_amount("memory", "9007199254740992", Rounding::Up, Some(MOST));
        check_amount("memory", "9007199254740993", Rounding::Up, None);
        check_amount("cpu", "1e28", Rounding::Down, None);
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(thousandths("0.5"), Some(500));
        assert_eq!(thousandths("0.29"), Some(290));
        assert_eq!(thousandths("0.0001"), Some(1));
        assert_eq!(thousandths("1"), Some(1000));
        assert_eq!(thousandths("-0.5"), Some(-500));
        assert_eq!(thousandths("500m"), None);
        assert_eq!(thousandths("half"), None);
        assert_eq!(thousandths(""), None);
    }
}
