//! The page of labels that others set, from the table that templates are made by.

use std::fmt::Write as _;

use stoker_core::market::labels::{LABELS, Value};

use crate::page::GENERATED;

const HEAD: &str = "\
# Labels of nodes that others set

Pods that select these bring a node: each group's template bears them, and so do its nodes. Only
what is certain of an instance type is here, so parts of a GPU and vGPUs have few. A label that a
pool's `template.labels` sets stands as it is.

Labels of how a node was bought are in groups that are split by it: pools with
`splitCapacityType`, and all of a supplier of `kind: karpenter` or `aws`.

| label | set by | cloud | value | source |
|---|---|---|---|---|
";

const TAIL: &str = "
Nodes bear them before their GPUs work: from the NodeClaim, from the user data on EC2, or from what
the plugin was told. A NodeClaim leaves out what Karpenter and the kubelet set by themselves.
";

pub(crate) fn reference() -> String {
    let mut page = format!("{GENERATED}\n{HEAD}");
    for label in &LABELS {
        let split = if matches!(label.value, Value::Bought(_)) { "; split groups only" } else { "" };
        let cloud = label.setter.cloud().unwrap_or("all");
        let (key, setter) = (label.key, label.setter.as_str());
        let _ = writeln!(page, "| `{key}` | {setter} | {cloud} | {}{split} | {} |", label.means, label.source);
    }
    page.push_str(TAIL);
    page
}
