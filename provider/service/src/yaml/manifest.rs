//! Policies in the manifest of a ConfigMap: as it is applied, or as `kubectl get` prints it, in YAML or JSON, alone or in a List.

use stoker_core::base::text::quoted;

use super::tree::{self, Field, Node, Tree};

/// A policy that a manifest holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldPolicy {
    /// How the place of its faults is called: the manifest, where the lines of the text are the manifest's.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The policies under `data` of every ConfigMap in `text`; `None` where there is no ConfigMap. `file_name` is only shown.
///
/// Of a literal block (`policy.yaml: |`), all lines before its own are blank and its own stay as they are: a fault is then
/// told with its line and column of the manifest. Of other forms the lines are those of the policy.
pub fn held_policies(file_name: &str, text: &str) -> Option<Vec<HeldPolicy>> {
    let roots = tree::parse_all(text)?;
    let mut config_maps = Vec::new();
    for root in &roots {
        collect(root, &mut config_maps);
    }
    if config_maps.is_empty() {
        return None;
    }
    let lines: Vec<&str> = text.lines().collect();
    let data = config_maps.into_iter().filter_map(|config_map| field(config_map, "data"));
    let entries = data.filter_map(|data| match &data.tree {
        Tree::Map(entries) => Some(entries),
        _ => None,
    });
    let read = |(key, entry): (&String, &Field)| {
        let Tree::Text(value) = &entry.value.tree else { return None };
        is_policy(key, value).then(|| {
            literal(&lines, entry).map_or_else(
                || HeldPolicy { name: format!("{file_name}, data[{}]", quoted(key)), text: value.clone() },
                |text| HeldPolicy { name: file_name.to_owned(), text },
            )
        })
    };
    Some(entries.flatten().filter_map(read).collect())
}

/// Each ConfigMap of a document: itself, or the items of a List.
fn collect<'n>(node: &'n Node, found: &mut Vec<&'n Node>) {
    match field(node, "kind").map(|kind| &kind.tree) {
        Some(Tree::Text(kind)) if kind == "ConfigMap" => found.push(node),
        Some(Tree::Text(kind)) if kind.ends_with("List") => {
            if let Some(Tree::List(items)) = field(node, "items").map(|items| &items.tree) {
                for item in items {
                    collect(item, found);
                }
            }
        }
        _ => {}
    }
}

fn field<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    match &node.tree {
        Tree::Map(fields) => fields.get(key).map(|field| &field.value),
        _ => None,
    }
}

/// Whether an entry says that it is a policy: by its kind, which a text that is no YAML may still show, or by the name that the
/// Deployment mounts.
fn is_policy(key: &str, text: &str) -> bool {
    let kind = || tree::parse(text).root.and_then(|root| field(&root, "kind").map(|kind| kind.tree.clone()));
    key == "policy.yaml"
        || text.lines().any(|line| line.trim_start().starts_with("kind: Policy"))
        || matches!(kind(), Some(Tree::Text(kind)) if kind == "Policy")
}

/// The lines of a literal block, each at its own line of the manifest; `None` for a value in another form.
fn literal(lines: &[&str], entry: &Field) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let header = entry.key_at.line;
    let (key, value) = lines.get(header.checked_sub(1)?)?.split_once(": ")?;
    if !value.trim_start().starts_with('|') {
        return None;
    }
    let inside = |line: &&&str| line.trim().is_empty() || indent(line) > indent(key);
    let own = lines.iter().skip(header).take_while(inside).copied();
    Some(std::iter::repeat_n("", header).chain(own).flat_map(|line| [line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_their_lines_and_columns() {
        let text = "kind: Namespace\n---\nkind: ConfigMap\ndata:\n  other: x\n  a.yaml: |\n    # why\n\n    kind: Policy\n  b: |-\n    no\n  c: |\n    kind: Policy # b\n---\nkind: Pod\n";
        let held = held_policies("cm.yaml", text).unwrap();
        assert_eq!(held.len(), 2);
        assert_eq!(held[0].text.lines().nth(8), Some("    kind: Policy"));
        assert_eq!(held[1].text.lines().nth(12), Some("    kind: Policy # b"));
        assert!(held.iter().all(|one| one.name == "cm.yaml" && one.text.matches("kind:").count() == 1));
        assert_eq!(held_policies("p", "kind: Policy\n"), None);
        assert_eq!(held_policies("p", "kind: ConfigMap\n"), Some(Vec::new()));
        assert_eq!(held_policies("p", ""), None);
        assert_eq!(held_policies("p", "kind: ConfigMap\ndata: [\n"), None);
    }

    #[test]
    fn any_form_of_manifest_is_read() {
        let policy = || "kind: Policy\npools: 5\n".to_owned();
        let named = |name: &str| vec![HeldPolicy { name: name.to_owned(), text: policy() }];
        let json = r#"{"kind": "ConfigMap", "data": {"policy.yaml": "kind: Policy\npools: 5\n"}}"#;
        assert_eq!(held_policies("cm.json", json), Some(named("cm.json, data[\"policy.yaml\"]")));
        let list = format!(r#"{{"kind": "List", "items": [{{"kind": "Pod"}}, {json}]}}"#);
        assert_eq!(held_policies("list", &list), Some(named("list, data[\"policy.yaml\"]")));
        let folded = "data: {a: \"kind: Policy\\npools: 5\\n\"}\nkind: \"ConfigMap\"\n";
        assert_eq!(held_policies("m", folded), Some(named("m, data[\"a\"]")));
        let items = "kind: ConfigMapList\nitems:\n- data:\n    a: |\n      kind: Policy\n  kind: ConfigMap\n";
        assert_eq!(
            held_policies("m", items).unwrap()[0].text,
            "\n\n\n\n      kind: Policy\n  kind: ConfigMap\n".replace("  kind: ConfigMap\n", "")
        );
        let flow = r#"{kind: ConfigMap, data: {b: "{\"kind\": \"Policy\"}", c: "kind: Pod"}}"#;
        assert_eq!(held_policies("m", flow).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_elsewhere_in_a_manifest_is_not_ours_to_judge() {
        let text = "kind: Pod\nspec: !x &a {<<: y}\n---\nkind: ConfigMap\ndata:\n  policy.yaml: |\n    kind: Polisy\n";
        assert_eq!(held_policies("m", text).unwrap().len(), 1);
    }
}
