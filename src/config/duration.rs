//! Durations in Go's notation: `1h30m`, `250ms`, `15m0s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration that is not negative, in Go's notation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    /// So many whole seconds.
    pub const fn seconds(seconds: u64) -> GoDuration {
        GoDuration(Duration::from_secs(seconds))
    }

    /// Whether it is zero, which means the default in most fields.
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not in this notation.
    #[error("{0:?} is not a duration such as 30s, 15m or 2h22m")]
    Syntax(String),
    /// Less than nothing.
    #[error("{0} is negative")]
    Negative(String),
    /// More than 292 years, which is what Go can count in nanoseconds.
    #[error("{0} is too long")]
    TooLong(String),
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<GoDuration, DurationError> {
        let syntax = || DurationError::Syntax(text.chars().take(60).collect());
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest.is_empty() {
            return Err(syntax());
        }
        let mut total: u128 = 0;
        while !rest.is_empty() && rest != "0" {
            let (nanoseconds, after) = part(rest).ok_or_else(syntax)?;
            total = total.saturating_add(nanoseconds);
            rest = after;
        }
        match u64::try_from(total).ok().filter(|total| *total <= i64::MAX as u64) {
            None => Err(DurationError::TooLong(text.chars().take(60).collect())),
            Some(total) if negative && total > 0 => Err(DurationError::Negative(text.into())),
            Some(total) => Ok(GoDuration(Duration::from_nanos(total))),
        }
    }
}

/// A number with its unit at the beginning of the text, in nanoseconds, and what comes after it.
fn part(text: &str) -> Option<(u128, &str)> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (whole, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (unit, rest) = UNITS.iter().find_map(|(name, unit)| Some((u128::from(*unit), rest.strip_prefix(name)?)))?;
    // Digits that are too many for a u128 are too long a duration, whatever they say.
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u128::MAX) };
    let mut nanoseconds = whole.saturating_mul(unit);
    let mut share = unit;
    for digit in fraction.bytes() {
        share /= 10;
        nanoseconds = nanoseconds.saturating_add(share * u128::from(digit - b'0'));
    }
    Some((nanoseconds, rest))
}

/// As Go prints it: `15m0s`, `1.5s`, `250ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_nanos();
        if total == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in [("ns", 1_000), ("µs", 1_000_000), ("ms", 1_000_000_000)] {
            if total < size {
                return write!(f, "{}{unit}", decimal(total, size / 1_000));
            }
        }
        let seconds = self.0.as_secs();
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if seconds >= 60 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(total % 60_000_000_000, 1_000_000_000))
    }
}

/// A number of units, with as many decimals as it needs.
fn decimal(nanoseconds: u128, unit: u128) -> String {
    let (whole, rest) = (nanoseconds / unit, nanoseconds % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0width$}").trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a text, or from a number of nanoseconds, as one field of the API has it.
impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = GoDuration;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a duration such as 30s, 15m or 2h22m")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, nanoseconds: u64) -> Result<GoDuration, E> {
                Ok(GoDuration(Duration::from_nanos(nanoseconds)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads_is_read_and_printed_as_go_does() {
        for (text, nanoseconds, printed) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("-0s", 0, "0s"),
            ("30s", 30_000_000_000, "30s"),
            ("15m", 900_000_000_000, "15m0s"),
            ("2h22m", 8_520_000_000_000, "2h22m0s"),
            ("24h", 86_400_000_000_000, "24h0m0s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("250ms", 250_000_000, "250ms"),
            ("+1m1.25s", 61_250_000_000, "1m1.25s"),
            ("1500us", 1_500_000, "1.5ms"),
            ("7µs", 7_000, "7µs"),
            ("3ns", 3, "3ns"),
        ] {
            let read: GoDuration = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(read.0.as_nanos(), nanoseconds, "{text}");
            assert_eq!(read.to_string(), printed, "{text}");
            assert_eq!(printed.parse(), Ok(read), "{printed} reads back");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in ["", "-", "s", "5", "5 s", "1d", ".s", "1e3s", "s5", "1h-5m", "٣s"] {
            assert_eq!(text.parse::<GoDuration>(), Err(DurationError::Syntax(text.into())), "{text:?}");
        }
        assert_eq!("-5s".parse::<GoDuration>(), Err(DurationError::Negative("-5s".into())));
        for text in ["9223372037s", "300000000h", "99999999999999999999999999999999999999999999h"] {
            assert_eq!(text.parse::<GoDuration>(), Err(DurationError::TooLong(text.into())), "{text:?}");
        }
    }
}
