//! Policies in the manifest of a ConfigMap, as the Deployment mounts them.

/// The text of each policy under `data` of a ConfigMap, or `None` where the text is no such manifest.
///
/// All lines but those of the policy are blank, and its own stay as they are: a fault is then told with its
/// line and column of the manifest.
pub(super) fn policies(text: &str) -> Option<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut held = None;
    let mut begin = 0;
    while begin < lines.len() {
        let of = lines.iter().skip(begin).position(|line| line.starts_with("---"));
        let end = of.map_or(lines.len(), |n| begin + n);
        let is_config_map = |line: &&str| line.trim_end() == "kind: ConfigMap";
        if lines.iter().take(end).skip(begin).any(is_config_map) {
            held.get_or_insert_with(Vec::new).extend(blocks(&lines, begin, end));
        }
        begin = end + 1;
    }
    held
}

/// The literal blocks under `data` of lines `begin..end` that say that they are policies.
fn blocks(lines: &[&str], begin: usize, end: usize) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let is_blank = |line: &str| line.trim().is_empty();
    let mut found = Vec::new();
    let Some(data) = lines.iter().take(end).skip(begin).position(|line| line.trim_end() == "data:") else { return found };
    let mut at = begin + data + 1;
    while let Some(&key) = lines.get(at).filter(|line| at < end && (is_blank(line) || indent(line) > 0)) {
        at += 1;
        let is_block = key.split_once(": ").is_some_and(|(_, value)| value.starts_with('|'));
        if !is_block {
            continue;
        }
        let inside = |line: &&&str| is_blank(line) || indent(line) > indent(key);
        let block = lines.iter().take(end).skip(at).take_while(inside).count();
        let own = lines.iter().skip(at).take(block);
        if own.clone().any(|line| line.trim().starts_with("kind: Policy")) {
            let blank = std::iter::repeat_n("", at);
            found.push(blank.chain(own.copied()).flat_map(|line| [line, "\n"]).collect());
        }
        at += block;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_keep_their_lines_and_columns() {
        let text = "kind: Namespace\n---\nkind: ConfigMap\ndata:\n  other: x\n  a.yaml: |\n    # why\n\n    kind: Policy\n  b: |-\n    no\n  c: |\n    kind: Policy # b\n---\nkind: Pod\n";
        let held = policies(text).unwrap();
        assert_eq!(held.len(), 2);
        assert_eq!(held[0].lines().nth(8), Some("    kind: Policy"));
        assert_eq!(held[1].lines().nth(12), Some("    kind: Policy # b"));
        assert!(held.iter().all(|one| one.matches("kind:").count() == 1));
        assert_eq!(policies("kind: Policy\n"), None);
        assert_eq!(policies("kind: ConfigMap\n"), Some(Vec::new()));
        assert_eq!(policies(""), None);
    }
}
