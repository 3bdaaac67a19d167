//! `stoker aws`.

use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;
use stoker_fake_ec2::{ACCESS_KEY, Fault, Peer, ReservedInstances, Rule, aws_yaml};

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

/// A file that names what a peer has, and more.
fn write(dir: &Path, url: &str, more: &str) -> String {
    let file = dir.join("aws.yaml");
    std::fs::write(&file, aws_yaml(url) + more).unwrap();
    file.display().to_string()
}

/// What `stoker aws check` says of the account of a peer, with the file that names what it has, rewritten.
async fn checked(peer: &Peer, rewritten: impl FnOnce(String) -> String) -> Ran {
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    let file = dir.path().join("aws.yaml");
    std::fs::write(&file, rewritten(aws_yaml(served.url()))).unwrap();
    tokio::task::spawn_blocking(move || {
        let mut command = command(&["aws", "check", "--cluster", "prod", "--file"]);
        command.arg(file).env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "secret");
        ran(&command.output().unwrap())
    })
    .await
    .unwrap()
}

/// The file with a region more, like the first.
fn with_region(file: &str, name: &str) -> String {
    let (head, classes) = file.split_once("nodeClasses:").unwrap();
    let (_, first) = head.split_once("- name: us-east-1\n").unwrap();
    format!("{head}- name: {name}\n{first}nodeClasses:{classes}")
}

#[tokio::test]
async fn an_account_is_held_against_the_file() {
    let peer = Peer::new("111111111111");
    let ran = checked(&peer, |file| file).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    golden("aws-check", &without_requests(&ran.out));
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
    let old = "  old: { instanceProfile: stoker-node, image: { id: ami-gone } }\n";
    let ran = checked(&peer, |file| file + old).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    golden("aws-check-lacking", &without_requests(&ran.out));
}

/// What fails first keeps nothing else from being looked at.
#[tokio::test]
async fn one_run_shows_every_name_that_an_account_does_not_know() {
    let peer = Peer::new("111111111111");
    {
        let mut world = peer.world();
        let unknown = Fault::status(403, "InvalidClientTokenId", "The security token included in the request is invalid.");
        world.fault(Rule { region: Some("us-west-2".to_owned()), ..Rule::of("GetCallerIdentity", unknown) });
    }
    let named = |file: String| {
        let file = file.replace("cluster: { name: prod }", "cluster: { name: prodd }");
        with_region(&file.replace("  securityGroups", "  interruptionQueue: stoker-prodd\n  securityGroups"), "us-west-2")
    };
    let ran = checked(&peer, named).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    golden("aws-check-unknown", &without_requests(&ran.out));
}

#[tokio::test]
async fn a_region_that_the_account_has_not_enabled_is_shown_with_its_cure() {
    let peer = Peer::new("111111111111");
    let closed = "You are not subscribed to this service in this region.";
    let refused = Fault::status(403, "OptInRequired", closed);
    peer.world().fault(Rule { action: None, region: Some("us-east-1".to_owned()), ..Rule::of("", refused) });
    let ran = checked(&peer, |file| file).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    golden("aws-check-not-enabled", &without_requests(&ran.out));
}

#[test]
fn without_credentials_one_line_says_how_to_give_some() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("aws.yaml");
    std::fs::write(&file, with_region(&aws_yaml("http://127.0.0.1:9"), "us-west-2")).unwrap();
    let mut command = command(&["aws", "check", "--cluster", "prod", "--file"]);
    command.arg(file).env("HOME", dir.path()).env("AWS_EC2_METADATA_DISABLED", "true");
    let ran = ran(&command.output().unwrap());
    let said = "error: no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; in a pod, give its \
                service account a role by Pod Identity or IRSA\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (1, "", said));
}

#[tokio::test]
async fn offers_and_plans_go_by_what_an_account_tells() {
    let peer = Peer::new("111111111111");
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    let file = write(dir.path(), served.url(), "");
    let asked = |args: Vec<String>| {
        let mut command = command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.env_remove("STOKER_NOW").env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "secret");
        tokio::task::spawn_blocking(move || ran(&command.output().unwrap()))
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let offers = format!("offers --gpu L4 --region us-east-1 --capacity-type spot -o json --live {file}");
    let ran = asked(words(&offers)).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let first = &report["offers"][0];
    assert_eq!(
        (&first["instanceType"], &first["price"]["perNode"]["usd"]),
        (&"g6.xlarge".into(), &"0.321900".into()),
        "{first}"
    );
    assert!(first["price"]["source"].as_str().unwrap().starts_with("ec2@"), "{first}");
    let on_demand = format!("offers --gpu L4 --region us-east-1 --capacity-type on-demand -o json --live {file}");
    let report: Value = serde_json::from_str(&asked(words(&on_demand)).await.unwrap().out).unwrap();
    let told = |offer: &&Value| offer["price"]["source"].as_str().is_some_and(|source| source.starts_with("aws-pricing@"));
    assert!(report["offers"].as_array().unwrap().iter().any(|offer| told(&offer)), "{report}");
    // Nobody's credentials.
    peer.world().accounts.clear();
    let ran = asked(words(&offers)).await.unwrap();
    assert!(ran.code != 0 && ran.err.contains("--live: us-east-1: "), "{ran:?}");
}

#[tokio::test]
async fn what_an_account_has_paid_for_is_printed_as_the_policy_writes_it() {
    let peer = Peer::new("111111111111");
    {
        let (mut world, starts) = (peer.world(), Timestamp::now());
        let region = world.region("us-east-1");
        region.add_reservation("cr-0123456789abcdef0", "p5.48xlarge", "use1-az4", 2);
        let reserved = ReservedInstances {
            id: "ri-1".to_owned(),
            instance_type: "g6.xlarge".to_owned(),
            count: 3,
            zone: None,
            state: "active".to_owned(),
            starts,
            seconds: 31_536_000,
            fixed_price: "876.0".to_owned(),
            hourly: "0.25".to_owned(),
        };
        // A machine without GPUs is none of Stoker's.
        let of_cpus = ReservedInstances { id: "ri-2".to_owned(), instance_type: "m6i.large".to_owned(), ..reserved.clone() };
        region.reserved.extend([reserved, of_cpus]);
    }
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    let file = write(dir.path(), served.url(), "");
    let mut command = command(&["commit", "--from-aws", &file]);
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "secret");
    let ran = tokio::task::spawn_blocking(move || ran(&command.output().unwrap())).await.unwrap();
    assert_eq!(ran.code, 0, "{ran:?}");
    let read: Value = serde_saphyr::from_str(&ran.out).unwrap();
    let [reservation, reserved] = read["commitments"].as_array().unwrap().as_slice() else { panic!("{}", ran.out) };
    assert_eq!(
        (&reservation["kind"], &reservation["zone"], &reservation["nodes"]),
        (&"capacity-reservation".into(), &"use1-az4".into(), &2.into())
    );
    // 876 dollars over 8,760 hours are a tenth of a dollar an hour.
    assert_eq!((&reserved["name"], &reserved["usdPerHour"]), (&"ri-1".into(), &serde_json::json!(1.05)), "{}", ran.out);
    // A policy takes it as it is.
    let policy = std::fs::read_to_string("../manifests/examples/policy.yaml").unwrap();
    let with = dir.path().join("policy.yaml");
    let without: String = policy.split("\ncommitments:").next().unwrap().to_owned();
    std::fs::write(&with, format!("{without}\n{}", ran.out)).unwrap();
    let checked = stoker(&["policy", "check", with.to_str().unwrap()]);
    assert_eq!(checked.code, 0, "{checked:?}\n{}", ran.out);
}

/// The same where every request of the peer has one id: calls that run together get theirs in any order.
fn without_requests(text: &str) -> String {
    const NUMBERED: &str = "00000000-0000-4000-8000-";
    let mut parts = text.split(NUMBERED);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + NUMBERED + "000000000000" + part.get(12..).unwrap_or_default())
}
