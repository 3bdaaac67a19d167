//! `stoker aws`.

use serde_json::Value;
use stoker_fake_ec2::{ACCESS_KEY, Fault, Peer, Rule};

use crate::binary::{Ran, command, golden, ran, stoker};

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

/// What `stoker aws check` says of the account of a peer.
async fn checked(peer: &Peer, more: &str) -> Ran {
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    let services = ["ec2", "sts", "eks", "ssm", "sqs", "service-quotas", "pricing"];
    let endpoints = services.map(|service| format!("{service}: {}", served.url())).join(", ");
    let file = dir.path().join("aws.yaml");
    let text = format!(
        "apiVersion: stoker.dev/v1alpha1\nkind: AwsSupplier\ncluster: {{ name: prod }}\nregions:\n- name: us-east-1\n  subnets: {{ tags: {{ \
         stoker.dev/discovery: prod }} }}\n  securityGroups: {{ tags: {{ stoker.dev/discovery: prod }} }}\n  endpoints: {{ {endpoints} \
         }}\nnodeClasses:\n  gpu: {{ instanceProfile: stoker-node }}\n{more}"
    );
    std::fs::write(&file, text).unwrap();
    tokio::task::spawn_blocking(move || {
        let file = file.to_str().unwrap();
        let mut command = command(&["aws", "check", "--file", file, "--cluster", "prod"]);
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "secret");
        ran(&command.output().unwrap())
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn an_account_is_held_against_the_file() {
    let peer = Peer::new("111111111111");
    let ran = checked(&peer, "").await;
    assert_eq!(ran.code, 0, "{ran:?}");
    golden("aws-check", &ran.out);
    let world = peer.world();
    assert!(world.machines.is_empty() && world.named_to_end.is_empty());
}

#[tokio::test]
async fn what_an_account_lacks_is_told_with_its_cure() {
    let peer = Peer::new("111111111111");
    {
        let mut world = peer.world();
        let denied = Fault::status(403, "UnauthorizedOperation", "You are not authorized to perform this operation.");
        world.fault(Rule::of("DescribeSpotPriceHistory", denied));
        world.region("us-east-1").subnets.retain(|_, subnet| subnet.zone_id == "use1-az1");
        world.region("us-east-1").profiles.clear();
    }
    let ran = checked(&peer, "  old: { instanceProfile: stoker-node, image: { id: ami-gone } }\n").await;
    assert_eq!(ran.code, 1, "{ran:?}");
    golden("aws-check-lacking", &ran.out);
}
