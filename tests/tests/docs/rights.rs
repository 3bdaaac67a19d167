//! The page of rights, from the manifests: each rule with the comment above it.

use std::fmt::Write as _;
use std::fs;

use crate::cli::{cell, wrapped};
use crate::page::{GENERATED, root};

/// Files of rights, and who needs them.
const FILES: [(&str, &str); 5] = [
    ("manifests/stoker/rbac.yaml", "Stoker, always."),
    ("manifests/stoker/rbac-simulated.yaml", "Stoker, for a rehearsal with the simulated supplier."),
    ("manifests/stoker/rbac-isolation.yaml", "Stoker, for pools with `isolation`."),
    ("manifests/buffers/rbac.yaml", "Stoker and the autoscaler, for pools with `warmFloor.mechanism: capacityBuffer`."),
    ("manifests/cluster-autoscaler/rbac.yaml", "The Cluster Autoscaler."),
];

pub(crate) fn reference() -> String {
    let mut page = format!("{GENERATED}\n# Rights in the cluster\n\nThe probe has none.\n");
    for (path, who) in FILES {
        let _ = write!(
            page,
            "\n## {}\n\n{}\nFrom [`{path}`](../../../{path}).\n\n| API group | resources | verbs | why |\n|---|---|---|---|\n",
            path.trim_start_matches("manifests/"),
            wrapped(who)
        );
        let text = fs::read_to_string(root().join(path)).unwrap();
        let mut why = String::new();
        let (mut group, mut resources) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                why.push_str(comment);
                why.push(' ');
            } else if let Some(groups) = line.strip_prefix("- apiGroups: ") {
                groups.clone_into(&mut group);
            } else if let Some(names) = line.trim().strip_prefix("resources: ") {
                names.clone_into(&mut resources);
            } else if let Some(names) = line.trim().strip_prefix("resourceNames: ") {
                let _ = write!(resources, " {names}");
            } else if let Some(verbs) = line.trim().strip_prefix("verbs: ") {
                let list = |text: &str| cell(&text.replace(['[', ']', '"'], ""));
                let group = if group == "[\"\"]" { "core".to_owned() } else { list(&group) };
                let _ = writeln!(page, "| {group} | {} | {} | {} |", list(&resources), list(verbs), cell(&why));
                why.clear();
            } else {
                // What is said of a whole object is not said of its first rule.
                why.clear();
            }
        }
    }
    page
}
