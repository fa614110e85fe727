//! Parts of times and durations. Times are taken in UTC unless a zone is named.

use jiff::{Timestamp, tz::TimeZone};
use kube_cel::cel::Value as Cel;

use super::eval::Failure;

/// A timestamp value as an instant.
pub(crate) fn instant(value: &Cel) -> Result<Timestamp, Failure> {
    let Cel::Timestamp(time) = value else { return Err(Failure::NoSuchOverload) };
    let nanos = i32::try_from(time.timestamp_subsec_nanos()).unwrap_or(0);
    Timestamp::new(time.timestamp(), nanos).map_err(|_| Failure::Other("timestamp out of range".to_owned()))
}

/// A duration value as text: seconds, with a fraction if there is one.
pub(crate) fn seconds(value: &Cel) -> Result<String, Failure> {
    let Cel::Duration(duration) = value else { return Err(Failure::NoSuchOverload) };
    let (seconds, nanos) = (duration.num_seconds(), duration.subsec_nanos());
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let fraction = format!("{:09}", nanos.unsigned_abs());
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    Ok(format!("{sign}{}{point}{fraction}s", seconds.unsigned_abs()))
}

/// A part of a timestamp or duration, such as `getHours`.
pub(crate) fn part(name: &str, value: &Cel, zone: Option<&str>) -> Result<i64, Failure> {
    if let Cel::Duration(duration) = value {
        return match (name, zone) {
            ("getHours", None) => Ok(duration.num_hours()),
            ("getMinutes", None) => Ok(duration.num_minutes()),
            ("getSeconds", None) => Ok(duration.num_seconds()),
            ("getMilliseconds", None) => Ok(duration.num_milliseconds()),
            _ => Err(Failure::NoSuchOverload),
        };
    }
    let zone = match zone {
        None => TimeZone::UTC,
        Some(name) => find_zone(name)?,
    };
    let time = instant(value)?.to_zoned(zone);
    Ok(match name {
        "getFullYear" => i64::from(time.year()),
        "getMonth" => i64::from(time.month()) - 1,
        "getDate" => i64::from(time.day()),
        "getDayOfMonth" => i64::from(time.day()) - 1,
        "getDayOfYear" => i64::from(time.day_of_year()) - 1,
        "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(time.hour()),
        "getMinutes" => i64::from(time.minute()),
        "getSeconds" => i64::from(time.second()),
        "getMilliseconds" => i64::from(time.millisecond()),
        _ => return Err(Failure::NoSuchOverload),
    })
}

/// A zone by name, or by its distance from UTC such as `+02:00`.
fn find_zone(name: &str) -> Result<TimeZone, Failure> {
    let unknown = || Failure::Other(format!("unknown time zone {name}"));
    if let Some((hours, minutes)) = name.split_once(':') {
        let negative = hours.starts_with('-');
        let hours: i32 = hours.parse().map_err(|_| unknown())?;
        let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
        let total =
            hours.saturating_mul(3600).saturating_add(if negative { -60 } else { 60 } * minutes.clamp(0, 59));
        return jiff::tz::Offset::from_seconds(total).map(TimeZone::fixed).map_err(|_| unknown());
    }
    TimeZone::get(name).map_err(|_| unknown())
}
