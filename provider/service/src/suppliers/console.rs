//! The end of a machine's console, as people may read it: short, on one line, and without secrets.

/// Lines at most.
const LINES: usize = 15;

/// Bytes at most: with the words around it an Event holds 1,024.
const BYTES: usize = 700;

/// A line with one of these may hold a secret: user data is often echoed as it runs.
const SECRET: [&str; 11] = [
    "token",
    "passw",
    "secret",
    "credential",
    "private key",
    "authorization",
    "bearer",
    "api_key",
    "apikey",
    "api-key",
    "access_key",
];

/// What stands for a line, or a part of one, that is not shown.
const WITHHELD: &str = "[withheld]";

/// A run of letters and digits so long is a key or a certificate, and no word.
const OPAQUE: usize = 32;

/// The last lines of `text`; `None` where it has none.
pub(super) fn tail(text: &str) -> Option<String> {
    let mut shown = String::new();
    for line in text.lines().rev().map(readable).filter(|line| !line.is_empty()).take(LINES) {
        let rest = std::mem::take(&mut shown);
        if rest.len() + line.len() > BYTES {
            // The last line of all is shown in part rather than not at all.
            if rest.is_empty() {
                shown.extend(line.chars().take(BYTES / 4));
                shown.push('…');
            } else {
                shown = rest;
            }
            break;
        }
        shown = if rest.is_empty() { line } else { format!("{line} | {rest}") };
    }
    (!shown.is_empty()).then_some(shown)
}

/// A line without colours, and without what may be secret.
fn readable(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // A terminal's sequence ends with its first letter.
            let _ = chars.by_ref().find(char::is_ascii_alphabetic);
        } else if c == '\t' || !c.is_control() {
            plain.push(c);
        }
    }
    let lower = plain.to_lowercase();
    if SECRET.iter().any(|word| lower.contains(word)) {
        return WITHHELD.to_owned();
    }
    let is_opaque = |word: &&str| {
        let run = |c: &char| c.is_ascii_alphanumeric() || "+/=_-".contains(*c);
        word.chars().filter(run).count() >= OPAQUE && word.chars().any(|c| c.is_ascii_digit()) && !word.contains("://")
    };
    let words = plain.split_whitespace().map(|word| if is_opaque(&word) { WITHHELD } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_on_one_without_colours() {
        let text = "old\n".repeat(100) + "\u{1b}[32m[  OK  ]\u{1b}[0m Started\r\n\n  nodeadm: 403 from\tEKS  \n";
        let shown = tail(&text).unwrap();
        assert!(shown.ends_with("old | [ OK ] Started | nodeadm: 403 from EKS"), "{shown}");
        assert_eq!(shown.split(" | ").count(), LINES);
        assert_eq!((tail(""), tail("\n \u{7}\n")), (None, None));
    }

    #[test]
    fn what_may_be_secret_is_withheld() {
        let text =
            "+ kubeadm join --token abc.def\nexport DB_PASSWORD=x\nca: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg12345==\nready";
        assert_eq!(tail(text).unwrap(), "[withheld] | [withheld] | ca: [withheld] | ready");
    }

    #[test]
    fn it_is_never_long() {
        for text in ["é".repeat(10_000), "word ".repeat(1_000), "a line of words\n".repeat(1_000)] {
            let shown = tail(&text).unwrap();
            assert!(shown.len() <= BYTES + LINES * 3, "{}", shown.len());
        }
    }
}
