//! Schedules of cron jobs: five fields, or a name such as `@daily`, or `@every` with a duration.
//!
//! In: a schedule. Out: why it cannot be read, in the words of the reference server's parser. That parser knows lists,
//! ranges, steps and English names, but none of the extensions (`L`, `W`, `#`) that other parsers have.

/// Why the schedule cannot be read, or nothing.
pub(super) fn problem(schedule: &str) -> Option<String> {
    if schedule.is_empty() {
        return Some("empty spec string".to_owned());
    }
    let body = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(rest) => {
            let (zone, body) = rest.split_once(' ').unwrap_or((rest, ""));
            if jiff::tz::TimeZone::get(zone).is_err() {
                return Some(format!("provided bad location {zone}: unknown time zone {zone}"));
            }
            body.trim()
        }
        None => schedule,
    };
    if body.starts_with('@') {
        return descriptor(body);
    }
    let fields: Vec<&str> = body.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(FIELDS).find_map(|(text, field)| text.split(',').find_map(|part| field.problem(part)))
}

/// The bounds of one field, and names for its values from the lowest on.
struct Field {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: &[Field] = &[
    Field { min: 0, max: 59, names: &[] },
    Field { min: 0, max: 23, names: &[] },
    Field { min: 1, max: 31, names: &[] },
    Field {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl Field {
    fn problem(&self, text: &str) -> Option<String> {
        self.check(text).err()
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let range_and_step: Vec<&str> = text.split('/').collect();
        let low_and_high: Vec<&str> =
            range_and_step.first().copied().unwrap_or_default().split('-').collect();
        let is_single = low_and_high.len() == 1;
        let (start, mut end) = match low_and_high.as_slice() {
            ["*" | "?", ..] => (self.min, self.max),
            [low] => {
                let low = self.number(low)?;
                (low, low)
            }
            [low, high] => (self.number(low)?, self.number(high)?),
            _ => return Err(format!("too many hyphens: {text}")),
        };
        let step = match range_and_step.as_slice() {
            [_] => 1,
            [_, step] => {
                let step = plain_number(step)?;
                // A start with a step runs to the end.
                if is_single {
                    end = self.max;
                }
                step
            }
            _ => return Err(format!("too many slashes: {text}")),
        };
        if start < self.min {
            return Err(format!("beginning of range ({start}) below minimum ({}): {text}", self.min));
        }
        if end > self.max {
            return Err(format!("end of range ({end}) above maximum ({}): {text}", self.max));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        Ok(())
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let name = text.to_lowercase();
        match (self.min..).zip(self.names).find(|(_, known)| **known == name) {
            Some((number, _)) => Ok(number),
            None => plain_number(text),
        }
    }
}

fn plain_number(text: &str) -> Result<u32, String> {
    let number: i64 = text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })?;
    u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

fn descriptor(text: &str) -> Option<String> {
    const NAMES: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if NAMES.contains(&text) {
        return None;
    }
    match text.strip_prefix("@every ") {
        Some(duration) if is_duration(duration) => None,
        Some(_) => Some(format!("failed to parse duration {text}: time: invalid duration")),
        None => Some(format!("unrecognized descriptor: {text}")),
    }
}

/// Numbers each followed by a unit, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut is_any = false;
    while !rest.is_empty() {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let unit = digits.trim_start_matches(|c: char| c.is_alphabetic());
        let (number_len, unit_len) = (rest.len() - digits.len(), digits.len() - unit.len());
        let name = digits.get(..unit_len).unwrap_or_default();
        if number_len == 0 || !["ns", "us", "µs", "ms", "s", "m", "h"].contains(&name) {
            return false;
        }
        is_any = true;
        rest = unit;
    }
    is_any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_schedules() {
        for schedule in [
            "* * * * *",
            "*/5 0-6/2 1,15 JAN-mar sun",
            "0 0 ? * 1-5",
            "5/15 * * * *",
            "@daily",
            "@every 1h30m",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(problem(schedule), None, "{schedule}");
        }
    }

    #[test]
    fn bad_schedules() {
        for (schedule, expected) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("* * L * *", "failed to parse int from L: strconv.Atoi: parsing \"L\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("*/1/2 * * * *", "too many slashes: */1/2"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: time: invalid duration"),
            ("", "empty spec string"),
        ] {
            assert_eq!(problem(schedule).as_deref(), Some(expected), "{schedule}");
        }
    }
}
