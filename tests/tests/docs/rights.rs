//! The page of rights, from the manifests: each rule with the comment above it, and what admission
//! policies hold.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use stoker_tests::manifests::{Object, Rule, folder, objects, rules};

use crate::cli::cell;
use crate::page::GENERATED;

/// Files of rights, whose they are, and for what feature.
const FEATURES: [(&str, &str, &str); 10] = [
    ("stoker/rbac.yaml", "Stoker", "always"),
    ("probe/rbac.yaml", "Stoker", "probes that prove their node by tokens"),
    ("isolation/rbac.yaml", "Stoker", "pools with `isolation`"),
    ("simulated/rbac.yaml", "Stoker", "a rehearsal with the simulated supplier"),
    ("karpenter/rbac.yaml", "Stoker", "a supplier of `kind: karpenter`"),
    ("boot/rbac.yaml", "Stoker", "plugins whose `bootTemplate` asks for a token"),
    ("karpenter/steering.yaml", "Stoker", "policies with `karpenter.steer`"),
    ("replicas/rbac.yaml", "Stoker", "two replicas on PostgreSQL"),
    ("buffers/rbac.yaml", "Stoker and the autoscaler", "pools with `warmFloor.mechanism: capacityBuffer`"),
    ("cluster-autoscaler/rbac.yaml", "the Cluster Autoscaler", "always"),
];

const HEAD: &str = "\
# Rights in the cluster

`manifests/stoker` has what every Stoker needs. What one feature needs is in a folder of its own:
apply it when you switch the feature on. The probe has no rights.

## Roles

A role is in the file of its row under `manifests/`. A `ClusterRole` counts in all namespaces, a
`Role` in one. In brackets: the only objects that a rule is about.

| feature | whose | API group | resources | verbs | why | where |
|---|---|---|---|---|---|---|
";

const POLICIES: &str = "
## Only with the chart

| whose | API group | resources | verbs | why |
|---|---|---|---|---|
| the Job of `tls.mode: selfSigned` | core | secrets [stoker-tls], secrets [stoker-client], configmaps [stoker-ca] | get, patch | Fills the certificates' objects, which Helm makes, and renews them. Each is in a namespace of its own. |

## Admission policies

RBAC cannot say which field of an object may change, nor of which objects by their labels. These
policies of [`stoker/admission.yaml`](../../../manifests/stoker/admission.yaml),
[`karpenter/admission.yaml`](../../../manifests/karpenter/admission.yaml),
[`karpenter/steering.yaml`](../../../manifests/karpenter/steering.yaml) and
[`boot/admission.yaml`](../../../manifests/boot/admission.yaml) do, for Stoker's service account
alone. They need Kubernetes 1.30 or later. What they name may change; every other field may not.

| policy | holds |
|---|---|
";

const RESIDUAL: &str = "
## What a stolen token can still do

A policy sees one object and cannot look up another. Whoever has the token of Stoker's account can

- read all Nodes and pods, with what stands in pods' environments;
- delete and evict pods outside of system namespaces, on nodes that are not Stoker's too;
- cordon and delete the Nodes that have the label `stoker.dev/cluster`, and change their holds and
  verdicts;
- create Events in any namespace;
- with `manifests/karpenter`, create NodeClaims of the carriers' classes, which are machines that
  cost money, and delete all that have the label `stoker.dev/cluster`;
- with `manifests/boot`, create bootstrap tokens, with which a machine that reaches the API server
  joins as a node, and delete those that have the label `stoker.dev/cluster`;
- with `manifests/karpenter/steering.yaml`, change the limits of NodePools that are opened by a
  label, and how long their free nodes stay, make prices for any NodePool, and protect Nodes of
  Karpenter's or release them;
- with `manifests/simulated`, create Nodes without an address, to which the scheduler may send pods;
- with `manifests/isolation`, let a pod of an opted-in namespace onto expensive nodes;
- with `manifests/buffers`, create and delete pod templates and CapacityBuffers in Stoker's own
  namespace, for which the autoscaler buys nodes within the policy's limits.

It can read no Secret, start no pod, change no image, and change no role. Disruption budgets hold
for evictions and not for deletions. Narrow pod deletion further with a policy of your own if your
clusters hold pods that no one may end: `stoker-pods-removal` is a pattern.
";

/// The comments before each rule of a file, in its order.
fn whys(file: &str) -> Vec<String> {
    let text = fs::read_to_string(folder().join(file)).unwrap();
    let (mut whys, mut why) = (Vec::new(), String::new());
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            why.push_str(comment);
            why.push(' ');
            continue;
        }
        if line.starts_with("- apiGroups:") {
            whys.push(cell(&why));
        }
        why.clear();
    }
    whys
}

fn groups(rule: &Rule) -> String {
    let name = |group: &String| if group.is_empty() { "core".to_owned() } else { group.clone() };
    rule.groups.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn resources(rule: &Rule) -> String {
    let names = if rule.names.is_empty() { String::new() } else { format!(" [{}]", rule.names.join(", ")) };
    rule.resources.join(", ") + &names
}

fn place(rule: &Rule) -> String {
    format!("`{}`, {} `{}`", rule.file, rule.kind, rule.role)
}

pub(crate) fn reference() -> String {
    let objects = objects().unwrap();
    let mut page = format!("{GENERATED}\n{HEAD}");
    for (file, whose, feature) in FEATURES {
        let of_file: Vec<Rule> = rules(&objects).into_iter().filter(|rule| rule.file == file).collect();
        let whys = whys(file);
        assert_eq!(of_file.len(), whys.len(), "{file}: a rule begins otherwise than by `- apiGroups:`");
        for (rule, why) in of_file.iter().zip(whys) {
            assert!(!why.is_empty(), "{file}: no comment above the rule says why: {rule:?}");
            let verbs = rule.verbs.join(", ");
            let (groups, resources, place) = (groups(rule), resources(rule), place(rule));
            let _ = writeln!(page, "| {feature} | {whose} | {groups} | {resources} | {verbs} | {why} | {place} |");
        }
    }
    page.push_str(POLICIES);
    for policy in policies(&objects) {
        let held: Vec<&str> = policy.list("/spec/validations").iter().filter_map(|one| one["message"].as_str()).collect();
        let _ = writeln!(page, "| `{}` | {} |", policy.text("/metadata/name"), cell(&held.join("; ")));
    }
    page.push_str(RESIDUAL);
    page
}

fn policies(objects: &[Object]) -> Vec<&Object> {
    objects.iter().filter(|object| object.text("/kind") == "ValidatingAdmissionPolicy").collect()
}

/// Each rule of the manifests, and each row of the page's table, as far as both say the same.
pub(crate) fn rules_and_rows(page: &str) -> (BTreeSet<Vec<String>>, BTreeSet<Vec<String>>) {
    let rules = rules(&objects().unwrap());
    let shipped = rules.iter().map(|rule| vec![groups(rule), resources(rule), rule.verbs.join(", "), place(rule)]).collect();
    let table = page.split("## Only with the chart").next().unwrap_or_default().lines().filter(|line| line.starts_with("| "));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        [2, 3, 4, 6].iter().filter_map(|at| cells.get(*at)).map(|cell| (*cell).to_owned()).collect()
    };
    (shipped, table.skip(1).map(row).collect())
}
