//! Which autoscalers are tested, and with which flags.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::bench::Release;

/// What differs from the flags that we recommend: the same, only sooner.
const SOONER: [(&str, &str); 6] = [
    ("--scan-interval", "2s"),
    ("--scale-down-unneeded-time", "10s"),
    ("--scale-down-delay-after-add", "10s"),
    ("--scale-down-unready-time", "30s"),
    ("--max-node-provision-time", "2m"),
    ("--leader-elect", "false"),
];
/// Only for tests.
const FOR_TESTS: [(&str, &str); 2] = [
    // Else GPU pods wait 30 s before they count.
    ("--bypassed-scheduler-names", "nobody"),
    ("--v", "4"),
];
/// Where things are; the caller says so.
const PLACES: [&str; 4] = ["--cloud-config", "--grpc-expander-url", "--grpc-expander-cert", "--kubeconfig"];

/// The flags of the autoscaler's Deployment that we ship, with the timers of a test.
pub fn flags(deployment: &str) -> Vec<(String, String)> {
    let shipped = deployment.lines().filter_map(|line| line.trim().strip_prefix("- --")?.split_once('='));
    let mut flags: Vec<(String, String)> = shipped
        .map(|(name, value)| (format!("--{name}"), value.to_owned()))
        .filter(|(name, _)| !PLACES.contains(&name.as_str()))
        .collect();
    for (name, value) in SOONER.iter().chain(&FOR_TESTS) {
        flags.retain(|(known, _)| known != name);
        flags.push(((*name).to_owned(), (*value).to_owned()));
    }
    flags
}

/// The autoscaler at that path, with those of our flags that it has.
///
/// # Errors
/// When the manifest cannot be read, or the binary cannot be run.
pub async fn release(program: &Path, real: bool, manifests: &Path) -> anyhow::Result<Release> {
    let path = manifests.join("cluster-autoscaler/deployment.yaml");
    let deployment = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let help = Command::new(program).arg("--help").output().await.with_context(|| program.display().to_string())?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned() + &String::from_utf8_lossy(&help.stderr);
    // Some releases list theirs with one dash.
    let words = help.split(|c: char| c.is_whitespace() || c == ',').map(|word| word.trim_end_matches('='));
    let known: BTreeSet<String> =
        words.filter_map(|word| Some(format!("--{}", word.strip_prefix('-')?.trim_start_matches('-')))).collect();
    ensure!(known.contains("--cloud-config"), "{} has no --cloud-config: is it a cluster autoscaler?", program.display());
    let flags = flags(&deployment).into_iter().filter(|(name, _)| known.contains(name));
    let flags = flags.map(|(name, value)| format!("{name}={value}")).collect();
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Release { name, program: PathBuf::from(program), real, known, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_flags_are_kept_and_hurried() {
        let flags = flags("command:\n- --expander=grpc,least-waste\n- --scan-interval=10s\n- --cloud-config=/x\n");
        let value = |name: &str| flags.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("--expander"), Some("grpc,least-waste"));
        assert_eq!(value("--scan-interval"), Some("2s"));
        assert_eq!(value("--cloud-config"), None);
    }
}
