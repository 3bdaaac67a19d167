//! Policy files that cannot be, may not be meant, or are no files.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::binary::{command, golden, stoker};
use super::small;

#[test]
fn schedules_that_fight_windows_and_each_other_are_told_with_line_and_cure() {
    let ran = small(&["policy", "check", "schedules.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran:?}");
    golden("faults-schedules", &ran.err);
}

/// What works as it is written, and may not be meant, is no fault.
#[test]
fn what_may_not_be_meant_is_a_warning_with_its_line() {
    let ran = small(&["policy", "check", "doubtful-policy.yaml"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.lines().all(|line| line.chars().count() <= 120), "{}", ran.out);
    golden("policy-doubts", &ran.out);
    let json = small(&["policy", "check", "doubtful-policy.yaml", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let first = report["warnings"][0].as_str().unwrap();
    assert!(first.starts_with("doubtful-policy.yaml:13:"), "{first}");
}

/// A device has no end. A command waits a while for somebody who writes to a pipe, the service, which reads
/// the file again and again, does not.
#[test]
fn what_is_no_file_is_not_read_and_a_pipe_without_a_writer_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let state = dir.path().join("state");
    let serve = ["serve", "--state-dir", state.to_str().unwrap(), "--policy"];
    let once = [&["policy", "check"][..], &["policy", "show"], &["plan", "--pool", "a", "--count", "1", "--policy"]];
    let refused = |args: &[&str], path: &str, why: &str| {
        let ran = stoker(&[args, &[path]].concat());
        assert_eq!(ran.code, 3, "{args:?} {path}: {ran:?}");
        assert!(ran.err.contains("cannot be read") && ran.err.contains(why), "{args:?} {path}: {ran:?}");
    };
    for path in ["/dev/zero", "/"] {
        for args in once.into_iter().chain([&serve[..]]) {
            refused(args, path, ": name a regular file");
        }
    }
    let pipe = pipe.to_str().unwrap();
    refused(&serve, pipe, "it is a pipe: name a regular file");
    std::thread::scope(|scope| {
        for args in once {
            scope.spawn(move || refused(args, pipe, "it is a pipe that did not end within 10 s"));
        }
    });
    let tables = stoker(&["offers", "--world", "/dev/zero"]);
    assert!(tables.code == 3 && tables.err.contains("it is a device"), "{tables:?}");
}

/// `policy check <(envsubst < p.yaml)`, and what a program writes to /dev/stdin.
#[test]
fn a_policy_comes_in_by_a_pipe_of_the_shell() {
    let shell = |script: &str| {
        let mut shell = command(&[]);
        let stoker = shell.get_program().to_owned();
        shell = Command::new("bash");
        let input = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/input");
        let output = shell.args(["-c", script]).arg(stoker).current_dir(input).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, out, err) = shell("\"$0\" policy check --prices-dir prices <(cat policy.yaml)");
    assert!(code == Some(0) && out.contains("valid, 2 pools"), "{out}{err}");
    let (code, out, err) = shell("cat policy.yaml | \"$0\" policy check --prices-dir prices /dev/stdin");
    assert!(code == Some(0) && out.contains("valid, 2 pools"), "{out}{err}");
    let (code, _, err) = shell("\"$0\" policy check <(head -c 5000000 /dev/zero)");
    assert!(code == Some(3) && err.contains("it is larger than 4 MiB"), "{err}");
}

#[test]
fn several_policies_are_checked_at_once_and_each_fault_is_told() {
    let both = small(&["policy", "check", "policy.yaml", "doubtful-policy.yaml"]);
    assert_eq!(both.code, 0, "{both:?}");
    assert!(both.out.starts_with("policy.yaml: valid") && both.out.contains("\ndoubtful-policy.yaml: valid"), "{both:?}");
    let bad = small(&["policy", "check", "bad-policy.yaml", "absent.yaml", "policy.yaml"]);
    assert_eq!(bad.code, 3, "{bad:?}");
    assert!(bad.out.starts_with("policy.yaml: valid"), "{bad:?}");
    assert!(bad.err.contains("bad-policy.yaml:6:") && bad.err.contains("absent.yaml: cannot be read"), "{bad:?}");
    let json = small(&["policy", "check", "bad-policy.yaml", "policy.yaml", "-o", "json"]);
    let reports: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &reports[0]["ok"], &reports[1]["ok"]), (3, &false.into(), &true.into()), "{json:?}");
}

#[test]
fn the_policy_in_a_config_map_is_checked_by_the_lines_of_the_manifest() {
    let shipped = stoker(&["policy", "check", "../../../../manifests/stoker/policy.yaml"]);
    assert!(shipped.code == 0 && shipped.out.contains("valid, 3 pools"), "{shipped:?}");
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("manifest.yaml");
    let text = "apiVersion: v1\nkind: ConfigMap\ndata:\n  policy.yaml: |\n    kind: Policy\n    pools: 5\n";
    std::fs::write(&manifest, text).unwrap();
    let bad = stoker(&["policy", "check", manifest.to_str().unwrap()]);
    assert!(bad.code == 3 && bad.err.contains("manifest.yaml:6:12: pools must be a list"), "{bad:?}");
    let printed = r#"{"kind": "List", "items": [{"kind": "ConfigMap", "data": {"policy.yaml": "kind: Policy\npools: 5\n"}}]}"#;
    std::fs::write(&manifest, printed).unwrap();
    let bad = stoker(&["policy", "check", manifest.to_str().unwrap()]);
    assert!(bad.code == 3 && bad.err.contains("manifest.yaml, data[\"policy.yaml\"]:2:8: pools must be a list"), "{bad:?}");
    std::fs::write(&manifest, "kind: ConfigMap\ndata: {}\n").unwrap();
    let none = stoker(&["policy", "check", manifest.to_str().unwrap()]);
    assert!(none.code == 3 && none.err.contains("is a ConfigMap that holds no policy"), "{none:?}");
}

#[test]
fn a_policy_comes_in_by_standard_input() {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/input/policy.yaml")).unwrap();
    let piped = |args: &[&str], text: &[u8]| {
        let mut child = command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, _) = piped(&["policy", "check", "-", "--prices-dir", "prices"], &text);
    assert_eq!(code, Some(0));
    let by_name = small(&["policy", "check", "policy.yaml"]).out;
    assert_eq!(out.lines().next(), by_name.lines().next().map(|line| line.replace("policy.yaml", "standard input")).as_deref());
    let (code, _, err) = piped(&["policy", "check", "-"], b"kind: Policy\npools: 5\n");
    assert!(code == Some(3) && err.contains("standard input:2:8: pools must be a list"), "{err}");
}

/// The slips of a first hour: each message says what to write.
#[test]
fn slips_of_yaml_name_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.yaml");
    let told = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let ran = command(&["policy", "check", "policy.yaml"]).current_dir(dir.path()).output().unwrap();
        assert_eq!(ran.status.code(), Some(3));
        String::from_utf8(ran.stderr).unwrap().lines().next().unwrap().to_owned()
    };
    let fields = "write its fields apiVersion, kind, clusterName, pools";
    assert_eq!(told(""), format!("policy.yaml:1:1: the file is empty: {fields}"));
    assert_eq!(told("- pools\n"), format!("policy.yaml:1:1: the file must be a mapping, is a list: {fields}"));
    let quote = "put text that begins with * or @ in quotes, as in cron: \"*/5 * * * *\"";
    assert_eq!(told("pools:\n- offHours: { schedule: [{ cron: */5 * * * *, for: 1h }] }\n").split("; ").last(), Some(quote));
    assert_eq!(
        told("cron: */5 * * * *\n"),
        format!("policy.yaml:1:7: cron names the anchor \"/5\", which no line above has: {quote}")
    );
    for text in ["cron: * * * * *\n", "cron: @daily\n"] {
        assert!(told(text).ends_with(quote), "{}", told(text));
    }
}

#[test]
fn a_time_that_is_none_names_both_places_that_it_may_come_from() {
    let ran = command(&["plan", "--pool", "inference", "--count", "1"]).env("STOKER_NOW", "noon").output().unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(err.contains("write --now, or the variable STOKER_NOW, like 2026-11-01T12:00:00Z"), "{err}");
}

/// A policy of which three pools have machines of EC2, made as that file says.
fn policy_with(file: &std::path::Path) -> String {
    let pool = |name: &str, class: &str| {
        format!(
            "- name: {name}\n  workload: training\n  gpu: {{ models: [L4] }}\n  where: {{ clouds: [aws], regions: [us-east-1] }}\n  \
             limits: {{ maxNodes: 1 }}\n{class}"
        )
    };
    let pools = [("right", "  nodeClass: gpu\n"), ("misspelt", "  nodeClass: gqu\n"), ("without", "")];
    let pools = pools.map(|(name, class)| pool(name, class)).concat();
    let supplier = format!("{{ name: aws, kind: aws, config: {} }}", file.display());
    format!("apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: prod\nsuppliers: [{supplier}]\npools:\n{pools}")
}

#[test]
fn a_node_class_that_no_file_defines_is_a_fault_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let (aws, policy) = (dir.path().join("aws.yaml"), dir.path().join("policy.yaml"));
    let check = || stoker(&["policy", "check", policy.to_str().unwrap()]);
    std::fs::write(&policy, policy_with(&aws)).unwrap();
    let unread = check();
    assert_eq!(unread.code, 0, "{unread:?}");
    let warning = unread.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        warning.contains("policy.yaml:4:")
            && warning.contains(
                "cannot be read here, so nodeClass and regions of pools are not checked: give it with --aws-file FILE"
            ),
        "{unread:?}"
    );
    let here = dir.path().join("here.yaml");
    std::fs::write(&here, stoker_fake_ec2::aws_yaml("http://127.0.0.1:9")).unwrap();
    let given = stoker(&["policy", "check", policy.to_str().unwrap(), "--aws-file", here.to_str().unwrap()]);
    assert!(given.code == 3 && given.err.contains("pools[1].nodeClass \"gqu\""), "{given:?}");
    std::fs::write(&aws, "kind: AwsSupplier\n").unwrap();
    let refused = stoker(&["policy", "check", policy.to_str().unwrap(), "--aws-file", aws.to_str().unwrap()]);
    assert!(refused.code == 3 && refused.err.contains("aws.yaml:1:1: ") && refused.err.contains("is missing"), "{refused:?}");
    let unsound = check();
    assert!(unsound.code == 0 && unsound.out.contains("has errors, so nodeClass"), "{unsound:?}");
    std::fs::write(&aws, stoker_fake_ec2::aws_yaml("http://127.0.0.1:9")).unwrap();
    let ran = check();
    assert_eq!(ran.code, 3, "{ran:?}");
    let faults: Vec<&str> =
        ran.err.lines().map(|line| line.rsplit_once("policy.yaml:").map_or(line, |(_, fault)| fault)).collect();
    assert_eq!(
        faults,
        [
            "17:14: pools[1].nodeClass \"gqu\" is no node class of its supplier: write one of gpu",
            "18:3: pools[2].nodeClass is missing, and its supplier makes nodes by class only: write one of gpu",
            "error: the file has errors; nothing was done",
        ]
    );
    let planned = stoker(&["plan", "--policy", policy.to_str().unwrap(), "--pool", "right", "--count", "1"]);
    let noted = planned.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(noted.contains("policy.yaml:17:14: pools[1].nodeClass \"gqu\" is no node class of its supplier"), "{planned:?}");
    // A plugin may know the class.
    let plugin = "{ name: own, kind: plugin, endpoint: \"http://127.0.0.1:9\" }";
    std::fs::write(&policy, policy_with(&aws).replace("suppliers: [", &format!("suppliers: [{plugin}, "))).unwrap();
    assert_eq!(check().code, 0, "{:?}", check());
}

#[test]
fn a_region_that_the_file_of_aws_lacks_is_a_fault_or_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let (aws, policy) = (dir.path().join("aws.yaml"), dir.path().join("policy.yaml"));
    std::fs::write(&aws, stoker_fake_ec2::aws_yaml("http://127.0.0.1:9")).unwrap();
    let check = |regions: &str| {
        let (right, _) = policy_with(&aws).split_once("- name: misspelt").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        std::fs::write(&policy, right.replace("regions: [us-east-1]", &format!("regions: [{regions}]"))).unwrap();
        stoker(&["policy", "check", policy.to_str().unwrap()])
    };
    let none = check("us-west-2, eu-west-1");
    let fault = "pools[0].where.regions has no region of aws.yaml, so the pool never gets a node: write one of us-east-1, or add one to \
                 aws.yaml";
    assert!(none.code == 3 && none.err.contains(fault), "{none:?}");
    let some = check("us-east-1, us-west-2");
    let warning = some.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = "pools[0].where.regions[1] \"us-west-2\" is no region of aws.yaml, so the pool gets no node there";
    assert!(some.code == 0 && warning.contains(wanted), "{some:?}");
}
