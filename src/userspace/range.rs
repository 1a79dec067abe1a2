//! The field `portRange` of the configuration: the host's ports that may be listened on.

use std::ops::RangeInclusive;

/// Reads `1000-2000`, `1000+500` (a first port and how many more), or a single port. Nothing, or `0-0`, leaves the choice
/// to the kernel.
///
/// # Errors
/// A message that says what is wrong.
pub fn parse(text: &str) -> Result<Option<RangeInclusive<u16>>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let number =
        |part: &str| part.trim().parse::<u16>().map_err(|_| format!("portRange: {part:?} in {text:?} is not a port"));
    let (first, last) = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => (number(first)?, number(last)?),
        (None, Some((first, more))) => {
            let (first, more) = (number(first)?, number(more)?);
            let last = first.checked_add(more);
            (first, last.ok_or_else(|| format!("portRange: {text:?} goes beyond 65535"))?)
        }
        (None, None) => (number(text)?, number(text)?),
    };
    match (first, last) {
        (0, 0) => Ok(None),
        (0, _) => Err(format!("portRange: {text:?} begins with 0, which is no port")),
        _ if last < first => Err(format!("portRange: {text:?} ends before it begins")),
        _ => Ok(Some(first..=last)),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn ranges_are_written_in_three_ways() {
        for (text, range) in [
            ("", None),
            ("0-0", None),
            ("0", None),
            ("7000-7005", Some(7000..=7005)),
            (" 7000+5 ", Some(7000..=7005)),
            ("7000", Some(7000..=7000)),
        ] {
            assert_eq!(parse(text), Ok(range), "{text:?}");
        }
        for text in ["x", "7000-", "7005-7000", "0-5", "65535+1", "70000"] {
            assert!(parse(text).is_err_and(|message| message.starts_with("portRange: ")), "{text:?}");
        }
    }
}
