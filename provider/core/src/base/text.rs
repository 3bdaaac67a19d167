//! Text in messages: quoting what an operator wrote, and guessing what they meant.

/// Longest piece of the operator's text that a message repeats, in characters: enough to find it by, short enough for a log line.
const MAX_QUOTED: usize = 60;

/// `text` as messages repeat it: in quotes, on one line, cut after `MAX_QUOTED` characters.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The candidate that `text` is most likely a slip of, if one is near: at most one edit in three characters. Case does
/// not count; of equally near ones the first wins.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text: Vec<char> = text.to_lowercase().chars().take(MAX_COMPARED + 1).collect();
    let (distance, candidate) = candidates
        .into_iter()
        .map(|candidate| (edits(&text, &candidate.to_lowercase().chars().collect::<Vec<_>>()), candidate))
        .min_by_key(|(distance, _)| *distance)?;
    (text.len() <= MAX_COMPARED && distance <= (text.len() / 3).max(1)).then_some(candidate)
}

/// Longer texts are no slip of any name we know; comparing them would only cost time.
const MAX_COMPARED: usize = 64;

/// How many characters to insert, delete, replace or swap with a neighbour to make `a` from `b`.
fn edits(a: &[char], b: &[char]) -> usize {
    // Three rows of the usual table: the one being filled, the last and the last but one (for swaps).
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let replace = last[j] + usize::from(from != to);
            let mut cost = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                cost = cost.min(before_last[j - 1] + 1);
            }
            row.push(cost);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word() {
        let known = ["limits", "labels", "L4", "L40S", "us-east-1", "us-west-1", "inference"];
        for (text, meant) in [
            ("limts", Some("limits")),
            ("limist", Some("limits")),
            ("l4", Some("L4")),
            ("L40", Some("L4")),
            ("l40s", Some("L40S")),
            ("us-east-3", Some("us-east-1")),
            ("infrence", Some("inference")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known), meant, "{text}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest(&"l".repeat(1 << 20), known), None);
    }
}
