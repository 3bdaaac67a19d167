use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::config::example::EXAMPLE;

/// A file that uses all that asks for rights.
const EVERYTHING: &str = r#"
apiVersion: stoker.dev/v1alpha1
kind: AwsSupplier
cluster: { name: prod }
regions:
- name: us-east-1
  subnets: { tags: { a: b } }
  securityGroups: { ids: [sg-1] }
  interruptionQueue: stoker-prod
- name: us-west-2
  subnets: { ids: [subnet-1] }
  securityGroups: { ids: [sg-2] }
- name: eu-central-1
  subnets: { ids: [subnet-2] }
  securityGroups: { ids: [sg-3] }
  interruptionQueue: notices
  assumeRole: { arn: "arn:aws:iam::222222222222:role/stoker" }
nodeClasses:
  plain: { instanceProfile: stoker-node }
  own:
    instanceProfile: stoker-node
    image: { family: custom, ssm: /own/image }
    userData: join @STOKER_LABELS@
    disk: { kmsKey: alias/nodes }
    placementGroup: training
  keyed: { instanceProfile: stoker-node, image: { id: ami-1 }, disk: { kmsKey: 1234abcd-12ab-34cd-56ef-1234567890ab } }
"#;

fn rights(text: &str, account: Option<&str>) -> Rights {
    let config = Config::parse("aws.yaml", text).unwrap_or_else(|faults| unreachable!("{faults}"));
    let cluster = ClusterName::new("live").unwrap();
    let node_roles = vec!["stoker-node".to_owned()];
    Rights::of(&config, &Asked { cluster, account: account.map(str::to_owned), node_roles }).unwrap()
}

fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| unreachable!("{error}\n{text}"))
}

#[test]
fn the_three_forms_of_the_example() {
    let rights = rights(EXAMPLE, Some("111111111111"));
    golden("iam", &rights.text(Format::Iam));
    golden("cloudformation", &rights.text(Format::CloudFormation));
    golden("terraform", &rights.text(Format::Terraform));
}

#[test]
fn several_regions_have_one_policy_and_a_queue_each() {
    let rights = rights(EVERYTHING, None);
    golden("iam-everything", &rights.text(Format::Iam));
    golden("cloudformation-everything", &rights.text(Format::CloudFormation));
    golden("terraform-everything", &rights.text(Format::Terraform));
    assert!(rights.policy_length() < LONGEST_MANAGED_POLICY, "{}", rights.policy_length());
}

/// The template has the policy of IAM, and each resource that is named in it.
#[test]
fn the_template_parses_and_holds_together() {
    for text in [EXAMPLE, EVERYTHING] {
        let rights = rights(text, None);
        let policy: Value = serde_json::from_str(&rights.text(Format::Iam)).unwrap();
        let template = yaml(&rights.text(Format::CloudFormation));
        let resources = template["Resources"].as_object().unwrap();
        let held = &resources["StokerPolicy"]["Properties"]["PolicyDocument"];
        let lists = |statement: &Value| {
            let list = |value: &Value| if value.is_array() { value.clone() } else { Value::from(vec![value.clone()]) };
            (list(&statement["Action"]), list(&statement["Resource"]), statement["Condition"].clone(), statement["Sid"].clone())
        };
        let of = |policy: &Value| policy["Statement"].as_array().unwrap().iter().map(lists).collect::<Vec<_>>();
        assert_eq!(of(held), of(&policy));
        let rules: Vec<&Value> = resources.values().filter(|of| of["Type"] == "AWS::Events::Rule").collect();
        assert_eq!(rules.len(), events::EVENTS.len());
        for rule in rules {
            assert_eq!(rule["Properties"]["Targets"][0]["Arn"], serde_json::json!({ "Fn::GetAtt": ["StokerQueue", "Arn"] }));
        }
        assert_eq!(resources["StokerQueue"]["Properties"]["MessageRetentionPeriod"], 300);
    }
}

#[test]
fn without_a_queue_there_are_no_rules() {
    let text = EXAMPLE.replace("  interruptionQueue: stoker-prod ", "  # ");
    let rights = rights(&text, None);
    for format in [Format::Iam, Format::CloudFormation, Format::Terraform] {
        assert!(!rights.text(format).contains("sqs:"), "{format:?}");
    }
    let template = yaml(&rights.text(Format::CloudFormation));
    assert_eq!(template["Resources"].as_object().unwrap().len(), 1);
}

#[test]
fn china_has_arns_and_services_of_its_own() {
    let text = EXAMPLE.replace("us-east-1", "cn-north-1");
    let policy = rights(&text, None).text(Format::Iam);
    assert!(
        policy.contains("arn:aws-cn:ec2:cn-north-1:*:instance/*") && policy.contains("\"ec2.amazonaws.com.cn\""),
        "{policy}"
    );
    assert!(!policy.contains("arn:aws:"), "{policy}");
    let both = Config::parse("aws.yaml", &EVERYTHING.replace("eu-central-1", "cn-north-1")).unwrap();
    let asked = Asked { cluster: ClusterName::new("live").unwrap(), account: None, node_roles: Vec::new() };
    assert!(Rights::of(&both, &asked).unwrap_err().to_string().contains("aws, aws-cn"));
}

/// HCL reads `${` within a text as a template.
#[test]
fn texts_of_the_file_stay_texts_in_terraform() {
    let text = EXAMPLE.replace("name: prod ", "name: \"${x}\" ");
    assert!(rights(&text, None).text(Format::Terraform).contains(":cluster/$${x}\""));
}

/// Rights that a launch needs beside its call.
const THROUGH_A_LAUNCH: [&str; 2] = ["ec2:CreateTags", "iam:PassRole"];

/// Calls that everybody may make.
const FREE: [&str; 1] = ["sts:GetCallerIdentity"];

/// What the sources call stands in the policy, and nothing else does.
#[test]
fn the_policy_has_the_calls_that_the_sources_make() {
    let mut called = calls();
    for free in FREE {
        assert!(called.remove(free), "{free} is not called any more");
    }
    let policy: Value = serde_json::from_str(&rights(EVERYTHING, None).text(Format::Iam)).unwrap();
    let mut allowed = BTreeSet::new();
    for statement in policy["Statement"].as_array().unwrap() {
        match &statement["Action"] {
            Value::Array(several) => allowed.extend(several.iter().filter_map(Value::as_str).map(str::to_owned)),
            one => allowed.extend(one.as_str().map(str::to_owned)),
        }
    }
    allowed.retain(|action| !THROUGH_A_LAUNCH.contains(&action.as_str()) && !action.starts_with("kms:"));
    let (lacking, needless): (Vec<_>, Vec<_>) = (called.difference(&allowed).collect(), allowed.difference(&called).collect());
    assert!(
        lacking.is_empty() && needless.is_empty(),
        "called and not allowed: {lacking:?}; allowed and not called: {needless:?}"
    );
}

/// What the supplier tells events by has a rule.
#[test]
fn every_event_that_the_sources_read_has_a_rule() {
    let source = shipped(&sources().join("region/notices.rs"));
    let (_, arms) = source.split_once("match event.detail_type.as_str() {").unwrap();
    let (arms, _) = arms.split_once("_ => {}").unwrap();
    let read: BTreeSet<&str> =
        arms.split(" => ").filter_map(|arm| arm.rsplit('"').nth(1)).filter(|of| of.contains(' ')).collect();
    assert!(read.contains("EC2 Spot Instance Interruption Warning"), "{read:?}");
    let ruled: BTreeSet<&str> = events::EVENTS.iter().map(|event| event.detail_type).collect();
    assert!(read.is_subset(&ruled), "{read:?}");
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// A source without its tests, in which white space is one blank.
fn shipped(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    shipped.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every call that the sources make, as IAM spells it.
fn calls() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![sources()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "rights" {
                folders.push(path);
            } else if path.extension().is_some_and(|is| is == "rs") && !["rights.rs", "tests.rs", "form.rs"].contains(&name) {
                calls_of(&path, &mut found);
            }
        }
    }
    found
}

fn calls_of(path: &Path, found: &mut BTreeSet<String>) {
    let source = shipped(path);
    let literal = |rest: &str| Some(rest.strip_prefix('"')?.split('"').next()?.to_owned());
    // The query protocol of EC2. One helper takes the name of its action from its callers.
    for mark in ["Form::ec2(", "chosen("] {
        for (at, _) in source.match_indices(mark) {
            let rest = source.get(at + mark.len()..).unwrap_or_default();
            match literal(rest) {
                Some(action) => drop(found.insert(format!("ec2:{action}"))),
                None => assert!(rest.starts_with("action"), "{}: {mark}{rest:.60}", path.display()),
            }
        }
    }
    // That of another service, and the protocols that name their service.
    for (at, mark) in source.match_indices("Service::") {
        let rest = source.get(at + mark.len()..).unwrap_or_default();
        let Some((service, rest)) = rest.split_once(", ") else { continue };
        if !service.chars().all(char::is_alphanumeric) {
            continue;
        }
        let action = literal(rest).or_else(|| literal(rest.strip_prefix("&Form::new(")?));
        found.extend(action.map(|action| format!("{}:{action}", service.to_lowercase())));
    }
    let count = |what: &str| source.matches(what).count();
    let named = [".ask_json", ".json_once", ".api.get"].map(count).iter().sum::<usize>();
    let literals = source.match_indices("Service::").filter(|(at, _)| {
        source.get(*at..).and_then(|rest| rest.split_once(", ")).is_some_and(|(_, rest)| rest.starts_with('"'))
    });
    assert!(named <= literals.count(), "{}: a call whose action is no literal", path.display());
    if source.contains("AssumeRoleProvider::builder") {
        found.insert("sts:AssumeRole".to_owned());
    }
}
