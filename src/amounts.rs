//! Numbers of things and times, as people read them.

/// A number of things, as English has it: `1 service`, `2 services`.
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A time in seconds, in the unit that it has most of: `1.25 s`, `1.25 ms`, `1.25 µs`. `digits` is how many of them stand
/// behind the point.
pub fn seconds(time: f64, digits: usize) -> String {
    let (unit, factor) = match time {
        time if time >= 1.0 || time == 0.0 => ("s", 1.0),
        time if time >= 1e-3 => ("ms", 1e3),
        time if time >= 1e-6 => ("µs", 1e6),
        _ => ("ns", 1e9),
    };
    format!("{:.digits$} {unit}", time * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "Service port")),
            ["0 Service ports", "1 Service port", "2 Service ports"]
        );
    }

    #[test]
    fn times_have_the_unit_that_they_have_most_of() {
        for (time, digits, expected) in [
            (0.0, 2, "0.00 s"),
            (12.345, 2, "12.35 s"),
            (1.0, 0, "1 s"),
            (0.012_34, 2, "12.34 ms"),
            (1e-3, 0, "1 ms"),
            (0.000_012_34, 2, "12.34 µs"),
            (0.000_000_5, 0, "500 ns"),
        ] {
            assert_eq!(seconds(time, digits), expected);
        }
    }
}
