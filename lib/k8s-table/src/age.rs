//! Times as people read them. In: durations and timestamps. Out: two or three significant figures, such as `5m30s`.
//! The thresholds are those of kubectl.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A duration in two units at most, the second one dropped as the first one grows.
///
/// ```
/// use jiff::SignedDuration;
/// use k8s_table::human_duration;
/// assert_eq!(human_duration(SignedDuration::from_secs(119)), "119s");
/// assert_eq!(human_duration(SignedDuration::from_secs(330)), "5m30s");
/// assert_eq!(human_duration(SignedDuration::from_hours(76)), "3d4h");
/// assert_eq!(human_duration(SignedDuration::from_secs(-5)), "<invalid>");
/// ```
pub fn human_duration(duration: SignedDuration) -> String {
    let seconds = seconds(duration);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        // Clocks of two machines differ a little, so a moment in the future is now.
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 2 * 60 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 3 * 60 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 2 * 365 => format!("{days}d"),
        () if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// A duration in one unit.
///
/// ```
/// use jiff::SignedDuration;
/// use k8s_table::short_human_duration;
/// assert_eq!(short_human_duration(SignedDuration::from_secs(119)), "1m");
/// assert_eq!(short_human_duration(SignedDuration::from_hours(76)), "3d");
/// ```
pub fn short_human_duration(duration: SignedDuration) -> String {
    let seconds = seconds(duration);
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..31_536_000 => format!("{}d", seconds / 86_400),
        31_536_000.. => format!("{}y", seconds / 31_536_000),
    }
}

/// How long ago a moment was, or `<unknown>`.
pub fn age(since: Option<Timestamp>, now: Timestamp) -> String {
    match since {
        Some(since) => human_duration(now.duration_since(since)),
        None => "<unknown>".into(),
    }
}

/// How long ago the moment in a timestamp field was, or `<unknown>` when there is none or it is no timestamp.
pub fn age_of(field: Option<&Value>, now: Timestamp) -> String {
    age(field.and_then(Value::as_str).and_then(parse_time), now)
}

/// Reads a timestamp as the API server does: RFC 3339 and nothing looser. The zero time is no time.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let (head, tail) = text.split_at_checked(19)?;
    let head_is_right = head.bytes().enumerate().all(|(place, b)| match place {
        4 | 7 => b == b'-',
        10 => b == b'T',
        13 | 16 => b == b':',
        _ => b.is_ascii_digit(),
    });
    // A leap second is refused by the server and accepted by the library.
    if !head_is_right || head.ends_with("60") {
        return None;
    }
    let (fraction, zone) = match tail.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().position(|b| !b.is_ascii_digit())?),
        None => ("", tail),
    };
    let zone_is_right = match zone.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].iter().all(|b| b.is_ascii_digit()),
        _ => false,
    };
    if !zone_is_right || (fraction.is_empty() && tail.starts_with('.')) {
        return None;
    }
    let digits = fraction.get(..9).unwrap_or(fraction);
    let dot = if digits.is_empty() { "" } else { "." };
    let time: Timestamp = format!("{head}{dot}{digits}{zone}").parse().ok()?;
    (time.to_string() != "0001-01-01T00:00:00Z").then_some(time)
}

/// Whole seconds toward zero, within the 292 years that the server can tell apart.
fn seconds(duration: SignedDuration) -> i64 {
    const LIMIT: i64 = i64::MAX / 1_000_000_000;
    duration.as_secs().clamp(-LIMIT, LIMIT)
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}
