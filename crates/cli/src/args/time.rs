//! Durations as users type them.

use std::time::Duration;

/// Seconds, or a number with a unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|sign: char| sign.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let plain =
        !number.is_empty() && number.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
    let number: f64 = match number.parse() {
        Ok(number) if plain => number,
        _ => return Err("a duration is written as 1.5, 250ms, 10s, 5m or 2h".to_owned()),
    };
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is not a unit: ms, s, m or h")),
    };
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())?;
    if time > LONGEST { Err("more than 365 days".to_owned()) } else { Ok(time) }
}

/// The longest lease and the longest wait that a server accepts.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// A lease: 1 ms or more.
pub fn lease(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(1) => Err("shorter than 1ms".to_owned()),
        lease => Ok(lease),
    }
}

/// The time between two polls: 100 ms or more.
pub fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(100) => Err("shorter than 100ms".to_owned()),
        interval => Ok(interval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("0", 0),
            ("1", 1000),
            ("1.5", 1500),
            (".25", 250),
            ("250ms", 250),
            ("10s", 10_000),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "ms", "-1", "1e3", "inf", "NaN", "1d", "1 s", "1.2.3", "9000h", "+1"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(lease("0").is_err());
        assert!(interval("10ms").is_err());
    }
}
