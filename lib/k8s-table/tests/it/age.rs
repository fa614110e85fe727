//! Durations and timestamps.

use jiff::SignedDuration;
use k8s_table::{age, age_of, human_duration, parse_time, short_human_duration};
use serde_json::json;

use crate::now;

#[test]
fn human_durations() {
    #[track_caller]
    fn check(seconds: i64, long: &str, short: &str) {
        let duration = SignedDuration::from_secs(seconds);
        assert_eq!(
            (human_duration(duration).as_str(), short_human_duration(duration).as_str()),
            (long, short)
        );
    }
    const M: i64 = 60;
    const H: i64 = 60 * M;
    const D: i64 = 24 * H;
    const Y: i64 = 365 * D;
    check(-2, "<invalid>", "<invalid>");
    check(-1, "0s", "0s");
    check(0, "0s", "0s");
    check(59, "59s", "59s");
    check(60, "60s", "1m");
    check(119, "119s", "1m");
    check(2 * M, "2m", "2m");
    check(5 * M + 30, "5m30s", "5m");
    check(10 * M - 1, "9m59s", "9m");
    check(10 * M + 59, "10m", "10m");
    check(3 * H - 1, "179m", "2h");
    check(3 * H, "3h", "3h");
    check(3 * H + 5 * M + 59, "3h5m", "3h");
    check(8 * H - 1, "7h59m", "7h");
    check(8 * H + 59 * M, "8h", "8h");
    check(48 * H - 1, "47h", "1d");
    check(2 * D, "2d", "2d");
    check(3 * D + 4 * H, "3d4h", "3d");
    check(8 * D - 1, "7d23h", "7d");
    check(8 * D, "8d", "8d");
    check(2 * Y - 1, "729d", "1y");
    check(2 * Y, "2y", "2y");
    check(3 * Y + 40 * D, "3y40d", "3y");
    check(8 * Y - 1, "7y364d", "7y");
    check(8 * Y, "8y", "8y");
    check(i64::MAX, "292y", "292y");
    check(i64::MIN, "<invalid>", "<invalid>");
    let just_in_the_future = SignedDuration::from_millis(-1900);
    assert_eq!(human_duration(just_in_the_future), "0s");
}

#[test]
fn timestamps() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(parse_time(text).map(|time| time.to_string()).unwrap_or_default(), expected);
    }
    check("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z");
    check("2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123456Z");
    check("2026-01-02T03:04:05.1234567891Z", "2026-01-02T03:04:05.123456789Z");
    check("2026-01-02T03:04:05+01:30", "2026-01-02T01:34:05Z");
    check("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z");
    check("0001-01-01T00:00:00Z", "");
    check("2023-02-29T00:00:00Z", "");
    check("2026-01-02T03:04:60Z", "");
    check("2026-01-02T03:04:05.Z", "");
    check("2026-01-02T03:04:05", "");
    check("2026-01-02 03:04:05Z", "");
    check("2026-01-02t03:04:05z", "");
    check("2026-01-02", "");
    check("", "");
    check("ééééééééééééééé", "");
}

#[test]
fn ages() {
    assert_eq!(age(None, now()), "<unknown>");
    assert_eq!(age(parse_time("2026-11-15T09:54:30Z"), now()), "5m30s");
    assert_eq!(age_of(Some(&json!("2026-11-15T10:00:05Z")), now()), "<invalid>");
    assert_eq!(age_of(Some(&json!("soon")), now()), "<unknown>");
    assert_eq!(age_of(Some(&json!(5)), now()), "<unknown>");
    assert_eq!(age_of(None, now()), "<unknown>");
}
