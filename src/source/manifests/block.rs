//! A YAML list of objects in block style, as tools write it, cut into its items by their indentation alone: what is wrong
//! within one of them does not matter to the others.

/// A list that was cut.
#[derive(Debug, PartialEq, Eq)]
pub struct List {
    /// The text with the items taken out.
    pub without_items: String,
    /// The items, in their order.
    pub items: Vec<Item>,
}

/// An item of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    /// The number of lines before it.
    pub lines_before: usize,
    /// Its text, with its indentation, and a space in the place of its dash.
    pub text: String,
}

/// Cuts the text at the items of the key `items`. Nothing where that is not there, or not in block style.
pub fn cut(text: &str) -> Option<List> {
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    let mut without_items = String::with_capacity(256);
    loop {
        let (_, line) = lines.next()?;
        if line.strip_prefix("items:").is_some_and(is_blank) {
            without_items.push('\n');
            break;
        }
        without_items.push_str(line);
    }
    let mut items: Vec<Item> = Vec::new();
    let mut indentation = None;
    while let Some((number, line)) = lines.peek().copied() {
        let depth = line.len() - line.trim_start_matches(' ').len();
        let begins =
            line[depth..].strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace) || rest.is_empty());
        match begins {
            Some(rest) if *indentation.get_or_insert(depth) == depth => {
                items.push(Item { lines_before: number, text: format!("{} {rest}", &line[..depth]) });
            }
            _ if is_blank(line) || indentation.is_some_and(|indentation| depth > indentation) => {
                // before the first item there is nothing but comments
                if let Some(item) = items.last_mut() {
                    item.text.push_str(line);
                }
            }
            _ => break,
        }
        lines.next();
    }
    without_items.extend(lines.map(|(_, line)| line));
    (!items.is_empty()).then_some(List { without_items, items })
}

/// Whether there is nothing but a comment.
fn is_blank(line: &str) -> bool {
    let rest = line.trim();
    rest.is_empty() || rest.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_at_their_dashes() {
        for indentation in ["", "  "] {
            let text = format!(
                "---\napiVersion: v1\nitems: # all\n# one\n{0}- a: 1\n{0}  b:\n{0}  - x: [\n\n{0}-\n{0}  a: |\n{0}    - c\n\
                 kind: List\nmetadata: {{}}\n",
                indentation
            );
            let item = |lines_before, text: &str| Item { lines_before, text: text.replace('_', indentation) };
            let items = vec![item(4, "_  a: 1\n_  b:\n_  - x: [\n\n"), item(8, "_ \n_  a: |\n_    - c\n")];
            let without_items = "---\napiVersion: v1\n\nkind: List\nmetadata: {}\n".to_string();
            assert_eq!(cut(&text), Some(List { without_items, items }), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_in_block_style_is_not_cut() {
        for text in ["", "a: 1\n", "items: []\n", "items:\n", "items:\n  a: 1\n", "spec:\n  items:\n  - a\n", "- a\n"] {
            assert_eq!(cut(text), None, "{text:?}");
        }
    }
}
