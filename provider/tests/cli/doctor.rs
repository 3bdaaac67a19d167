//! `stoker doctor`: what it says of an autoscaler's flags, and how it ends.

use super::binary::{golden, stoker};
use super::small;

/// As many autoscalers are started: nothing of it is tuned for us.
const USUAL: &str = "./cluster-autoscaler --cloud-provider=externalgrpc --cloud-config=/etc/config --expander=least-waste \
                     --balance-similar-node-groups --skip-nodes-with-local-storage=false --scale-down-unneeded-time=20m -v=4 \
                     --max-node-provision-time=8m --startup-taint=nvidia.com/gpu --scale-down-unneded-time=1m";

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests/cluster-autoscaler/deployment.yaml");

#[test]
fn the_flags_that_fight_the_policy_are_told_gravest_first_with_what_to_write() {
    let args = ["doctor", "--policy", "policy.yaml", "--autoscaler-version", "1.34", "--autoscaler-args", USUAL];
    let ran = small(&args);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 120), "{}", ran.out);
    golden("doctor", &ran.out);
    let json = small(&[&args[..], &["-o", "json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(report["autoscalerVersion"], "1.34");
    let findings = report["findings"].as_array().unwrap();
    let of = |severity: &str| findings.iter().filter(|finding| finding["severity"] == severity).count();
    assert_eq!(
        (report["errors"].as_u64(), report["warnings"].as_u64()),
        (Some(of("error") as u64), Some(of("warning") as u64))
    );
    let provision = findings.iter().find(|finding| finding["flag"] == "max-node-provision-time").unwrap();
    assert_eq!(provision["write"], serde_json::json!(["--max-node-provision-time=20m"]));
    assert_eq!(small(&[&args[..], &["-o", "yaml"]].concat()).code, 3);
}

#[test]
fn the_documented_autoscaler_has_nothing_to_change() {
    let ran = stoker(&["doctor", "--autoscaler-manifest", MANIFEST]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out, "Cluster Autoscaler 1.36, policy the built-in example policy: nothing to change\n");
}

#[test]
fn a_file_is_read_and_what_cannot_be_examined_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("args");
    std::fs::write(&file, "--cloud-provider=externalgrpc # ours\n--cloud-config=/c --leader-elect=false --scan-interval=1m\n")
        .unwrap();
    let at = format!("@{}", file.display());
    let ran = stoker(&["doctor", "--autoscaler-args", &at]);
    assert!(
        ran.out.contains("--scan-interval=1m") && ran.out.contains("(the newest known; give yours with --autoscaler-version"),
        "{ran:?}"
    );
    for (args, code, told) in [
        (vec!["doctor"], 2, "<--autoscaler-args <FLAGS>|--autoscaler-manifest <FILE>>"),
        (
            vec!["doctor", "--autoscaler-args", "@/dev/zero"],
            1,
            "it is a device: name a regular file, or pipe it in and name it -",
        ),
        (vec!["doctor", "--autoscaler-manifest", "/dev/zero"], 1, "it is a device: name a regular file"),
        (vec!["doctor", "--autoscaler-args", "--a='b"], 2, "--autoscaler-args: the quotation mark ' is never closed"),
        (vec!["doctor", "--autoscaler-args", "@none"], 1, "none cannot be read"),
        (vec!["doctor", "--autoscaler-args", "", "--autoscaler-version", "36"], 2, "write it like 1.36"),
        (vec!["doctor", "--autoscaler-manifest", "policy.yaml"], 2, "policy.yaml: no container here runs a Cluster Autoscaler"),
    ] {
        let ran = stoker(&args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(told), "{args:?}: {ran:?}");
    }
}
