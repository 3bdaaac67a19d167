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
    assert!(ran.err.contains("--file nowhere.yaml: cannot be read"), "{ran:?}");
    for (command, flag) in [
        (&["offers"][..], "--live"),
        (&["plan", "--pool", "training", "--count", "1"], "--live"),
        (&["policy", "check", "policy.yaml"], "--aws-file"),
        (&["commit"], "--from-aws"),
    ] {
        let ran = stoker(&[command, &[flag, "nowhere.yaml"]].concat());
        assert!(ran.code == 3 && ran.err.starts_with(&format!("error: {flag} nowhere.yaml: cannot be read\n")), "{ran:?}");
    }
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
    checked_with(peer, rewritten, "--cluster prod", "").await
}

/// The same with these flags, and a policy in `policy.yaml`.
async fn checked_with(peer: &Peer, rewritten: impl FnOnce(String) -> String, flags: &'static str, policy: &str) -> Ran {
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("aws.yaml"), rewritten(aws_yaml(served.url()))).unwrap();
    std::fs::write(dir.path().join("policy.yaml"), policy).unwrap();
    tokio::task::spawn_blocking(move || {
        let mut command = command(&["aws", "check", "--file", "aws.yaml"]);
        command.args(flags.split(' ')).current_dir(dir.path());
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "secret");
        ran(&command.output().unwrap())
    })
    .await
    .unwrap()
}

/// A policy with pools of AWS's, each of a name, GPU models and more fields.
fn policy_of(pools: &[(&str, &str, &str)]) -> String {
    let pool = |(name, models, more): &(&str, &str, &str)| {
        format!(
            "- {{ name: {name}, workload: training, gpu: {{ models: [{models}] }}, where: {{ clouds: [aws], regions: [us-east-1] }}, \
             nodeClass: gpu, limits: {{ maxNodes: 2 }}, {more} }}\n"
        )
    };
    let pools: String = pools.iter().map(pool).collect();
    format!(
        "apiVersion: stoker.dev/v1alpha1\nkind: Policy\nclusterName: prod\n\
         suppliers: [{{ name: ec2, kind: aws, config: /etc/stoker/aws/aws.yaml }}]\npools:\n{pools}"
    )
}

/// The rows of a report, each with single spaces and on one line.
fn rows(ran: &Ran) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for line in ran.out.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match rows.last_mut().filter(|_| line.starts_with("  ")) {
            Some(row) => row.extend([" ", &words]),
            None => rows.push(words),
        }
    }
    rows
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

/// The cure is there whether or not the cluster is found.
#[tokio::test]
async fn what_there_is_none_of_fails() {
    for cluster in ["prod", "prodd"] {
        let peer = Peer::new("111111111111");
        {
            let mut world = peer.world();
            let region = world.region("us-east-1");
            region.subnets.clear();
            region.groups.clear();
        }
        let ran = checked(&peer, |file| file.replace("name: prod", &format!("name: {cluster}"))).await;
        assert_eq!(ran.code, 1, "{ran:?}");
        let rows = rows(&ran);
        for wanted in [
            "FAILED us-east-1 subnets no subnet is found by tags stoker.dev/discovery=prod: correct subnets in aws.yaml, or tag one",
            "FAILED us-east-1 security groups no security group is found by tags stoker.dev/discovery=prod: correct securityGroups in \
             aws.yaml, or tag one",
        ] {
            assert!(rows.iter().any(|row| row == wanted), "{wanted}: {rows:#?}");
        }
    }
}

#[tokio::test]
async fn types_that_are_sold_without_a_subnet_only_fail_with_the_zones_that_have_them() {
    let peer = Peer::new("111111111111");
    {
        let mut world = peer.world();
        let region = world.region("us-east-1");
        region.subnets.retain(|_, subnet| subnet.zone_id == "use1-az1");
        region.offered.retain(|(_, zone)| zone != "use1-az1");
    }
    let ran = checked(&peer, |file| file).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let wanted = "FAILED us-east-1 types sold here none in a zone with a subnet: add a subnet in use1-az2, use1-az4 to subnets in \
                  aws.yaml";
    assert!(rows(&ran).iter().any(|row| row == wanted), "{ran:?}");
}

/// Of each pool and market, in each zone, of each architecture.
#[tokio::test]
async fn launches_of_a_policy_are_tried() {
    let peer = Peer::new("111111111111");
    {
        let mut world = peer.world();
        let region = world.region("us-east-1");
        region.add_reservation("cr-1", "g6.xlarge", "use1-az2", 2);
        // A pool may have a market that its account does not allow.
        region.offered.remove(&("g5g.xlarge".to_owned(), "use1-az4".to_owned()));
    }
    let both = "capacity: { prefer: [spot, on-demand] }";
    let reserved = "capacity: { prefer: [reserved] }";
    let commitment = "commitments:\n- { name: cr-1, cloud: aws, kind: capacity-reservation, region: us-east-1, zone: use1-az2, \
                      instanceType: g6.xlarge, nodes: 2 }\n";
    let pools = [("inference", "L4, T4g", both), ("training", "H200", both), ("kept", "L4", reserved)];
    let ran = checked_with(&peer, |file| file, "--policy policy.yaml", &(policy_of(&pools) + commitment)).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    golden("aws-check-policy", &without_requests(&ran.out));
    assert!(peer.world().machines.is_empty());
}

#[tokio::test]
async fn a_policy_of_another_cluster_or_class_is_shown() {
    let peer = Peer::new("111111111111");
    let policy = policy_of(&[("inference", "L4", "capacity: { prefer: [spot] }")]);
    let ran = checked_with(&peer, |file| file, "--policy policy.yaml --cluster production", &policy).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let wanted = "FAILED - clusterName is prod in the policy, and --cluster production: machines are tagged with the policy's, so give \
                  that";
    assert!(rows(&ran).iter().any(|row| row == wanted), "{ran:?}");
    let ran =
        checked_with(&peer, |file| file, "--policy policy.yaml", &policy.replace("nodeClass: gpu", "nodeClass: gqu")).await;
    assert!(ran.code == 3 && ran.err.contains("pools[0].nodeClass \"gqu\" is no node class"), "{ran:?}");
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

/// What `stoker aws check` says on a machine with these variables and `~/.aws/config`, `HOME` standing for its folder.
fn without_keys(vars: &[(&str, &str)], config: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (file, home) = (dir.path().join("aws.yaml"), dir.path().display().to_string());
    std::fs::write(&file, with_region(&aws_yaml("http://127.0.0.1:9"), "us-west-2")).unwrap();
    std::fs::create_dir(dir.path().join(".aws")).unwrap();
    std::fs::write(dir.path().join(".aws/config"), config).unwrap();
    let mut command = command(&["aws", "check", "--cluster", "prod", "--file"]);
    command.arg(file).env("HOME", &home).env("AWS_EC2_METADATA_DISABLED", "true");
    command.envs(vars.iter().map(|(name, value)| (name, value.replace("HOME", &home))));
    let ran = ran(&command.output().unwrap());
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    ran.err.replace(&home, "HOME").trim_end().trim_start_matches("error: no AWS credentials: ").to_owned()
}

const ANY_KEYS: &str = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; in a pod, give its service account a role by Pod \
                        Identity or IRSA";

#[test]
fn without_credentials_one_line_says_how_to_give_some() {
    let sso = "[profile p]\nsso_start_url = https://x.awsapps.com/start\nsso_region = us-east-1\nsso_account_id = 111111111111\n\
               sso_role_name = x\n";
    let role = "[profile p]\nrole_arn = arn:aws:iam::111111111111:role/x\nsource_profile = base\n";
    let session = "[profile p]\nsso_session = s\nsso_account_id = 111111111111\nsso_role_name = x\n[sso-session s]\n\
                   sso_start_url = https://x.awsapps.com/start\nsso_region = us-east-1\n";
    let by_sso = "profiles by SSO are not supported: run `eval $(aws configure export-credentials --format env)`";
    let irsa = ("AWS_ROLE_ARN", "arn:aws:iam::111111111111:role/x");
    let pod = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/v1/credentials");
    for (vars, config, said) in [
        (&[][..], "", ANY_KEYS),
        (&[("AWS_ACCESS_KEY_ID", "AKIA")], "", "AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY: set both, or neither"),
        (&[("AWS_SECRET_ACCESS_KEY", "x")], "", "AWS_SECRET_ACCESS_KEY is set without AWS_ACCESS_KEY_ID: set both, or neither"),
        (
            &[("AWS_PROFILE", "prod")],
            sso,
            "AWS_PROFILE is prod, and no profile of that name has credentials in ~/.aws/config or ~/.aws/credentials: correct it, or \
             write that profile",
        ),
        (&[("AWS_PROFILE", "p")], sso, by_sso),
        (&[("AWS_PROFILE", "p")], session, by_sso),
        (
            &[("AWS_PROFILE", "p")],
            role,
            "source_profile of profile p is base, and there is no such profile in ~/.aws/config or ~/.aws/credentials: correct it, or \
             write that profile",
        ),
        (
            &[irsa, ("AWS_WEB_IDENTITY_TOKEN_FILE", "HOME/token")],
            "",
            "AWS_WEB_IDENTITY_TOKEN_FILE names HOME/token, which does not exist: unset it outside a pod, and in one set up IRSA again",
        ),
        (
            &[pod, ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "HOME/token")],
            "",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names HOME/token, which does not exist: unset it outside a pod, and in one set up \
             Pod Identity again",
        ),
    ] {
        assert_eq!(without_keys(vars, config).lines().last(), Some(said), "{vars:?} {config}");
    }
    let unreachable = [("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")];
    let said = without_keys(&unreachable, "");
    assert!(
        said.starts_with(&format!("{ANY_KEYS}; the instance's metadata cannot be read either ("))
            && said.ends_with("): for a pod that is to use it set its hop limit to 2"),
        "{said}"
    );
}

#[tokio::test]
async fn a_program_gives_credentials_and_a_role_is_assumed_where_the_file_says() {
    let peer = Peer::new("111111111111");
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    let role = |arn: &str| format!("  assumeRole: {{ arn: \"{arn}\" }}\n  securityGroups");
    let url = served.url().to_owned();
    std::fs::create_dir(dir.path().join(".aws")).unwrap();
    let program = format!("echo '{{\"Version\": 1, \"AccessKeyId\": \"{ACCESS_KEY}\", \"SecretAccessKey\": \"secret\"}}'");
    std::fs::write(dir.path().join(".aws/config"), format!("[default]\ncredential_process = {program}\n")).unwrap();
    let run = |arn: &'static str| {
        let file = dir.path().join("aws.yaml");
        std::fs::write(&file, aws_yaml(&url).replace("  securityGroups", &role(arn))).unwrap();
        let mut command = command(&["aws", "check", "--cluster", "prod", "--file"]);
        command.arg(file).env("HOME", dir.path()).env("PATH", "/usr/bin:/bin");
        tokio::task::spawn_blocking(move || ran(&command.output().unwrap()))
    };
    let own = run("arn:aws:iam::111111111111:role/stoker").await.unwrap();
    assert!(rows(&own).iter().any(|row| row == "ok us-east-1 credentials account 111111111111"), "{own:?}");
    let denied = Fault::status(403, "AccessDenied", "not authorized to perform sts:AssumeRole");
    peer.world().fault(Rule::of("AssumeRole", denied));
    let refused = run("arn:aws:iam::222222222222:role/other").await.unwrap();
    let said = format!("error: no AWS credentials: cannot assume arn:aws:iam::222222222222:role/other at {url}: ");
    assert!(refused.code == 1 && refused.err.contains(&said) && refused.err.contains("AccessDenied"), "{refused:?}");
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

/// A call that fails keeps no other from being made.
#[tokio::test]
async fn commitments_that_cannot_be_asked_are_named_and_the_others_printed() {
    let peer = Peer::new("111111111111");
    {
        let mut world = peer.world();
        world.region("us-east-1").add_reservation("cr-1", "g6.xlarge", "use1-az4", 2);
        let denied = || Fault::status(403, "UnauthorizedOperation", "You are not authorized to perform this operation.");
        world.fault(Rule::of("DescribeReservedInstances", denied()));
        world.fault(Rule::of("DescribeSubnets", denied()));
    }
    let (served, dir) = (peer.listen().await, tempfile::tempdir().unwrap());
    let file = write(dir.path(), served.url(), "");
    let mut command = command(&["commit", "--from-aws", &file]);
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "secret");
    let ran = tokio::task::spawn_blocking(move || ran(&command.output().unwrap())).await.unwrap();
    assert_eq!(ran.code, 4, "{ran:?}");
    for missing in
        ["reserved instances of us-east-1: DescribeReservedInstances: UnauthorizedOperation", "the zones' ids of us-east-1: "]
    {
        assert!(ran.out.contains(&format!("# missing: {missing}")), "{ran:?}");
    }
    let read: Value = serde_saphyr::from_str(&ran.out).unwrap();
    assert_eq!(
        (&read["commitments"][0]["name"], &read["commitments"][0]["zone"]),
        (&"cr-1".into(), &"use1-az4".into()),
        "{ran:?}"
    );
}

/// The same where every request of the peer has one id: calls that run together get theirs in any order.
fn without_requests(text: &str) -> String {
    const NUMBERED: &str = "00000000-0000-4000-8000-";
    let mut parts = text.split(NUMBERED);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + NUMBERED + "000000000000" + part.get(12..).unwrap_or_default())
}
