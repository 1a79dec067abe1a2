//! What is wrong with YAML, in words for those who wrote it.

use std::borrow::Cow;

use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, MessageFormatter, UserMessageFormatter};

/// The library's message for users, with words where it shows its own data.
pub fn message(error: &Error) -> String {
    let mut text = error.render_with_formatter(&Words);
    // one of the many places that it comes from says nothing
    if text.starts_with(TOO_MUCH) {
        text.truncate(text.find(" at line ").unwrap_or(text.len()));
    }
    text
}

const TOO_MUCH: &str = "this is too much: ";

struct Words;

impl MessageFormatter for Words {
    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        match error {
            Error::Budget { breach, .. } => format!("{TOO_MUCH}{}", excess(breach)).into(),
            other => UserMessageFormatter.format_message(other),
        }
    }
}

/// What there is too much of. No limit but those on aliases and on the depth is met by anything that somebody wrote by hand.
fn excess(breach: &BudgetBreach) -> &'static str {
    match breach {
        BudgetBreach::Depth { .. } => "lists and mappings within each other",
        BudgetBreach::Aliases { .. }
        | BudgetBreach::Anchors { .. }
        | BudgetBreach::AliasAnchorRatio { .. }
        | BudgetBreach::RecordedAnchorEvents { .. }
        | BudgetBreach::RecordedAnchorBytes { .. } => "text repeated by anchors and aliases (& and *)",
        BudgetBreach::Events { .. } | BudgetBreach::Nodes { .. } => {
            "values, those repeated by anchors and aliases (& and *) among them"
        }
        BudgetBreach::MergeKeys { .. } => "merge keys (<<)",
        BudgetBreach::Documents { .. } => "documents",
        BudgetBreach::SequenceUnbalanced => "ends of lists and mappings",
        _ => "text",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn limits_are_told_in_words() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let aliases = vec![format!("*a{}", i - 1); 9].join(", ");
            bomb += &format!("a{i}: &a{i} [{aliases}]\n");
        }
        let deep = "- ".repeat(3_000) + "x";
        for (text, want) in [
            (bomb, "this is too much: values, those repeated by anchors and aliases (& and *) among them"),
            (deep, "this is too much: lists and mappings within each other"),
        ] {
            let error =
                serde_saphyr::from_str_with_options::<Value>(&text, serde_saphyr::options! { with_snippet: false })
                    .unwrap_err();
            let said = message(&error);
            assert!(said == want, "{said}");
        }
    }
}
