//! The types whose JSON form is not that of their message: times, durations, quantities, `IntOrString`.
//!
//! In: the parts of the message. Out: the JSON value as Go's marshallers of these types print it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Number, Value};

use crate::ProtoError;
use crate::decode::Place;
use crate::wire::{Fields, Payload};

/// Year 1 of Go's calendar, its zero time, in Unix seconds.
const ZERO_TIME: i64 = -62_135_596_800;

/// A time to the second; the zero time is null.
pub(crate) fn time(place: Place, message: &[u8]) -> Result<Value, ProtoError> {
    let (seconds, _) = timestamp(place, message)?;
    if seconds == ZERO_TIME {
        return Ok(Value::Null);
    }
    Ok(format!("{}Z", date_time(place, seconds)?).into())
}

/// A time to the microsecond; the zero time is null.
pub(crate) fn micro_time(place: Place, message: &[u8]) -> Result<Value, ProtoError> {
    let (seconds, nanos) = timestamp(place, message)?;
    // Go cuts to microseconds towards zero, then counts negative ones back from the second.
    let micros = i64::from(nanos) / 1000;
    let carried = seconds.checked_add(micros.div_euclid(1_000_000)).ok_or_else(|| place.no_json(NO_YEAR))?;
    let micros = micros.rem_euclid(1_000_000);
    if carried == ZERO_TIME && micros == 0 {
        return Ok(Value::Null);
    }
    Ok(format!("{}.{micros:06}Z", date_time(place, carried)?).into())
}

/// A duration as Go prints it: `1h2m0.5s`.
pub(crate) fn duration(place: Place, parts: &[&[u8]]) -> Result<Value, ProtoError> {
    let mut nanos = 0;
    each(parts, |number, payload| {
        if number == 1 {
            nanos = place.varint(payload)? as i64;
        }
        Ok(())
    })?;
    Ok(duration_text(nanos).into())
}

/// A quantity; the client has written its canonical form.
pub(crate) fn quantity(place: Place, parts: &[&[u8]]) -> Result<Value, ProtoError> {
    let mut text = "0";
    each(parts, |number, payload| {
        if number == 1 {
            text = place.string(payload)?;
        }
        Ok(())
    })?;
    Ok(text.into())
}

pub(crate) fn int_or_string(place: Place, parts: &[&[u8]]) -> Result<Value, ProtoError> {
    let (mut kind, mut int, mut text) = (0, 0, "");
    each(parts, |number, payload| {
        match number {
            1 => kind = place.varint(payload)?,
            2 => int = place.varint(payload)? as i32,
            3 => text = place.string(payload)?,
            _ => {}
        }
        Ok(())
    })?;
    match kind {
        0 => Ok(int.into()),
        1 => Ok(text.into()),
        _ => Err(place.no_json("it is neither a number nor a string")),
    }
}

/// The bytes of a message that is a wrapper around them.
pub(crate) fn wrapped<'b>(place: Place, parts: &[&'b [u8]]) -> Result<&'b [u8], ProtoError> {
    let mut bytes: &[u8] = b"";
    each(parts, |number, payload| {
        if number == 1 {
            bytes = place.bytes(payload)?;
        }
        Ok(())
    })?;
    Ok(bytes)
}

pub(crate) fn base64(bytes: &[u8]) -> Value {
    STANDARD.encode(bytes).into()
}

/// A float as Go prints it: whole ones below 1e21 have no point, so that a JSON reader takes them for integers.
pub(crate) fn double(place: Place, double: f64) -> Result<Value, ProtoError> {
    if double.fract() == 0.0 && double.abs() < 1e21 && !(double == 0.0 && double.is_sign_negative()) {
        let digits = double.to_string();
        if let Ok(whole) = digits.parse::<i64>() {
            return Ok(whole.into());
        }
        if let Ok(whole) = digits.parse::<u64>() {
            return Ok(whole.into());
        }
    }
    Number::from_f64(double).map(Value::Number).ok_or_else(|| place.no_json("it is not a finite number"))
}

/// Shows every field of the message to `see`.
pub(crate) fn each<'b>(
    parts: &[&'b [u8]],
    mut see: impl FnMut(u32, Payload<'b>) -> Result<(), ProtoError>,
) -> Result<(), ProtoError> {
    for part in parts {
        let mut fields = Fields::new(part);
        while let Some((number, payload)) = fields.next()? {
            see(number, payload)?;
        }
    }
    Ok(())
}

/// Seconds and nanoseconds; a message without fields is the zero time, one without seconds is of 1970.
fn timestamp(place: Place, message: &[u8]) -> Result<(i64, i32), ProtoError> {
    if message.is_empty() {
        return Ok((ZERO_TIME, 0));
    }
    let (mut seconds, mut nanos) = (0, 0);
    each(&[message], |number, payload| {
        match number {
            1 => seconds = place.varint(payload)? as i64,
            2 => nanos = place.varint(payload)? as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok((seconds, nanos))
}

const NO_YEAR: &str = "the time is not within the years 0 to 9999";

/// RFC 3339 to the second, without the zone.
fn date_time(place: Place, seconds: i64) -> Result<String, ProtoError> {
    let time = Timestamp::from_second(seconds).map_err(|_| place.no_json(NO_YEAR))?;
    let time = TimeZone::UTC.to_datetime(time);
    if time.year() < 0 {
        return Err(place.no_json(NO_YEAR));
    }
    Ok(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    ))
}

fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let text = match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => decimal(nanos, 3) + "µs",
        1_000_000..1_000_000_000 => decimal(nanos, 6) + "ms",
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = decimal(nanos % 60_000_000_000, 9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// `value` divided by ten to the power of `places`, without noughts at the end.
fn decimal(value: u64, places: u32) -> String {
    let unit = 10u64.pow(places);
    let width = places as usize;
    let digits = format!("{}.{:0width$}", value / unit, value % unit);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place::new("M", "f")
    }

    fn varint_field(number: u8, value: u64) -> Vec<u8> {
        let mut bytes = vec![number << 3];
        let mut value = value;
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[track_caller]
    fn check_duration(nanos: i64, expected: &str) {
        let message = varint_field(1, nanos as u64);
        assert_eq!(duration(place(), &[&message]).unwrap(), expected);
    }

    #[test]
    fn durations() {
        check_duration(0, "0s");
        check_duration(1, "1ns");
        check_duration(1_100, "1.1µs");
        check_duration(2_200_000, "2.2ms");
        check_duration(1_000_000_000, "1s");
        check_duration(10_000_000_000, "10s");
        check_duration(300_000_000_000, "5m0s");
        check_duration(3_300_000_000_000, "55m0s");
        check_duration(3_600_000_000_000, "1h0m0s");
        check_duration(3_723_500_000_000, "1h2m3.5s");
        check_duration(-1_500_000_000, "-1.5s");
        check_duration(i64::MAX, "2562047h47m16.854775807s");
        check_duration(i64::MIN, "-2562047h47m16.854775808s");
    }

    #[track_caller]
    fn check_time(seconds: i64, nanos: i32, expected: &str) {
        let mut message = varint_field(1, seconds as u64);
        message.extend(varint_field(2, i64::from(nanos) as u64));
        let show = |value: Result<Value, ProtoError>| match value {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        let seen = format!("{} {}", show(time(place(), &message)), show(micro_time(place(), &message)));
        assert_eq!(seen, expected);
    }

    #[test]
    fn times() {
        check_time(0, 0, r#""1970-01-01T00:00:00Z" "1970-01-01T00:00:00.000000Z""#);
        check_time(1_700_000_000, 1_999, r#""2023-11-14T22:13:20Z" "2023-11-14T22:13:20.000001Z""#);
        check_time(-1, 500_000_000, r#""1969-12-31T23:59:59Z" "1969-12-31T23:59:59.500000Z""#);
        check_time(10, -1_000, r#""1970-01-01T00:00:10Z" "1970-01-01T00:00:09.999999Z""#);
        check_time(ZERO_TIME, 0, "null null");
        check_time(ZERO_TIME + 86_400, 0, r#""0001-01-02T00:00:00Z" "0001-01-02T00:00:00.000000Z""#);
        let refused = "M.f: the value has no JSON form: the time is not within the years 0 to 9999";
        check_time(i64::MAX, i32::MAX, &format!("{refused} {refused}"));
        check_time(i64::MIN, i32::MIN, &format!("{refused} {refused}"));
        check_time(-99_999_999_999, 0, &format!("{refused} {refused}"));
        assert_eq!(time(place(), b"").unwrap(), Value::Null);
    }

    #[track_caller]
    fn check_double(value: f64, expected: &str) {
        let seen = double(place(), value).unwrap();
        assert_eq!(seen, serde_json::from_str::<Value>(expected).unwrap());
    }

    #[test]
    fn doubles() {
        check_double(0.0, "0");
        check_double(-0.0, "-0");
        check_double(5.0, "5");
        check_double(-5.0, "-5");
        check_double(0.5, "0.5");
        check_double(1.234_567_890_123_456_7e18, "1234567890123456800");
        check_double(1.844_674_407_370_955e19, "18446744073709550000");
        check_double(1e21, "1e+21");
        check_double(1e-7, "1e-07");
        assert!(double(place(), f64::NAN).is_err());
        assert!(double(place(), f64::INFINITY).is_err());
    }

    #[track_caller]
    fn check_int_or_string(message: &[u8], expected: Option<Value>) {
        assert_eq!(int_or_string(place(), &[message]).ok(), expected);
    }

    #[test]
    fn ints_or_strings() {
        check_int_or_string(b"", Some(0.into()));
        check_int_or_string(b"\x08\0\x10\x50\x1a\0", Some(80.into()));
        check_int_or_string(b"\x08\x01\x10\0\x1a\x0325%", Some("25%".into()));
        check_int_or_string(b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Some((-1).into()));
        check_int_or_string(b"\x08\x02", None);
        check_int_or_string(b"\x1a\x01\xff", None);
        check_int_or_string(b"\x0a\0", None);
    }
}
