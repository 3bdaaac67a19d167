//! The page of what Stoker is tested with: from the transcripts of real autoscalers and the versions of the peers.

use std::fmt::Write as _;
use std::fs;

use crate::page::root;

pub(crate) fn reference() -> String {
    let mut text = String::from(
        "# Tested with

Generated from `tests/transcripts` and the versions that `tests/peers` builds. Other releases of the
same minor version behave alike as far as is known.

## Cluster Autoscaler

Stoker serves every release since 1.25; calls that a release lacks are not asked for. Of these the
calls of a real one are on record, and each change of Stoker is held against them.

| release | scenarios on record |
|---|---|
",
    );
    let names = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(root().join(path)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    for release in names("tests/transcripts") {
        let scenarios = names(&format!("tests/transcripts/{release}"));
        let scenarios: Vec<String> = scenarios.iter().map(|name| name.trim_end_matches(".txt").replace('-', " ")).collect();
        writeln!(text, "| {release} | {} |", scenarios.join(", ")).unwrap();
    }
    text += "
## What each change is tested against

| part | version | least |
|---|---|---|
";
    let version = |file: &str, module: &str| -> String {
        let module_file = fs::read_to_string(root().join(file)).unwrap();
        let line = module_file.lines().map(str::trim).find(|line| line.trim_start_matches("require ").starts_with(module));
        line.unwrap().split_whitespace().find(|word| word.starts_with('v')).unwrap().trim_start_matches('v').to_owned()
    };
    for (part, version, least) in [
        ("Kubernetes", version("tests/peers/go.mod", "k8s.io/kubernetes "), "1.30, for the tokens of probes"),
        ("Karpenter", version("tests/peers/karpenter/go.mod", "sigs.k8s.io/karpenter "), "1.0"),
        ("Helm", version("tests/peers/helm/go.mod", "helm.sh/helm/v4 "), "3"),
        ("PostgreSQL", "Debian's".to_owned(), "14"),
        ("Prometheus", "Debian's".to_owned(), "2.40"),
    ] {
        writeln!(text, "| {part} | {version} | {least} |").unwrap();
    }
    text += "
## See also

[Upgrading](../upgrading.md), [Cluster Autoscaler](../tasks/cluster-autoscaler.md).
";
    text
}
