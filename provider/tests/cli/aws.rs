//! `stoker aws`.

use serde_json::Value;

use crate::binary::stoker;

const EXAMPLE: &str = "../../../../manifests/examples/aws.yaml";

fn policy(more: &[&str]) -> crate::binary::Ran {
    stoker(&[&["aws", "policy", "--file", EXAMPLE], more].concat())
}

#[test]
fn a_policy_is_printed_for_each_tool() {
    let known = ["--cluster", "prod", "--node-role", "stoker-node"];
    let json: Value = serde_json::from_str(&policy(&known).out).unwrap();
    assert_eq!(json["Version"], "2012-10-17");
    assert!(policy(&known).out.contains("arn:aws:iam::*:role/stoker-node"), "any account");
    let of_account = policy(&[&known[..], &["--account", "111111111111"]].concat());
    assert!(of_account.out.contains("arn:aws:iam::111111111111:role/stoker-node"), "{of_account:?}");
    assert!(policy(&[&known[..], &["--format", "cloudformation"]].concat()).out.contains("AWS::SQS::Queue"));
    assert!(policy(&[&known[..], &["--format", "terraform"]].concat()).out.contains("aws_sqs_queue"));
}

#[test]
fn what_the_file_does_not_say_is_asked_for_by_its_flag() {
    for (given, flag) in [
        (&[][..], "--cluster NAME"),
        (&["--cluster", "prod"], "--node-role NAME"),
        (&["--cluster", "prod", "--node-role", "arn:aws:iam::111111111111:role/x"], "write the name"),
        (&["--cluster", "prod", "--node-role", "x", "--account", "1"], "12 digits"),
    ] {
        let ran = policy(given);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(flag), "{ran:?}");
    }
}

#[test]
fn faults_of_the_file_are_listed_by_line() {
    let ran = stoker(&["aws", "policy", "--file", "policy.yaml", "--cluster", "prod", "--node-role", "x"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.err.starts_with("policy.yaml:") && ran.err.ends_with("error: the file has errors; nothing was done\n"),
        "{ran:?}"
    );
    let ran = stoker(&["aws", "policy", "--file", "nowhere.yaml", "--cluster", "prod", "--node-role", "x"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("nowhere.yaml: cannot be read"), "{ran:?}");
}

#[test]
fn editors_get_the_schema() {
    let schema: Value = serde_json::from_str(&stoker(&["aws", "schema"]).out).unwrap();
    assert_eq!(schema["title"], "Stoker's file for AWS");
}
