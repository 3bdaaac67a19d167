use std::collections::BTreeMap;

use super::{Choice, Config, Efa, Family, Image, LocalDisks, NodeNames};
use crate::testing::{file, golden};
use crate::wire::Service;

const FULL: &str = r#"
apiVersion: stoker.dev/v1alpha1
kind: AwsSupplier
cluster:
  name: prod
  endpoint: https://10.0.0.1:6443
  certificateAuthority: LS0tLS1CRUdJTg==
  serviceCidr: 10.100.0.0/16
  version: "1.33"
regions:
- name: us-east-1
  subnets: { tags: { stoker.dev/discovery: prod } }
  securityGroups: { ids: [sg-1, sg-2] }
  interruptionQueue: stoker-prod
  assumeRole: { arn: "arn:aws:iam::222222222222:role/stoker", externalId: x }
  endpoints: { ec2: "https://vpce-1.ec2.us-east-1.vpce.amazonaws.com", sts: "http://127.0.0.1:4566" }
- name: us-west-2
  account: "012345678901"
  subnets: { ids: [subnet-1] }
  securityGroups: { tags: { a: b, c: d } }
nodeClasses:
  gpu: { instanceProfile: stoker-node }
  training:
    instanceProfile: stoker-node
    image: { family: bottlerocket, version: 1.46.0 }
    disk: { sizeGiB: 500, throughput: 250, iops: 3000, kmsKey: alias/nodes }
    localDisks: unused
    efa: all
    placementGroup: training
    nodeNames: instance-id
    userData: "[settings.motd]"
    tags: { team: ml }
  own:
    instanceProfile: stoker-node
    image: { family: custom, ssm: /own/parameter }
    userData: 'kubeadm join # @STOKER_LABELS@ @STOKER_TAINTS@'
"#;

#[test]
fn a_full_file_is_read() {
    let Config { cluster, regions, classes } = Config::parse("aws.yaml", FULL).unwrap();
    assert_eq!(cluster.known.unwrap().endpoint, "https://10.0.0.1:6443");
    let [east, west] = regions.values().collect::<Vec<_>>()[..] else { panic!("two regions") };
    assert_eq!(east.subnets, Choice::Tags(BTreeMap::from([("stoker.dev/discovery".to_owned(), "prod".to_owned())])));
    assert_eq!(east.security_groups, Choice::Ids(vec!["sg-1".to_owned(), "sg-2".to_owned()]));
    assert_eq!(east.queue.as_deref(), Some("stoker-prod"));
    let role = east.role.as_ref().unwrap();
    assert_eq!((role.session.as_str(), role.external_id.as_deref()), ("stoker-prod", Some("x")));
    assert_eq!(east.endpoints[&Service::Sts], "http://127.0.0.1:4566");
    assert_eq!((&west.role, &west.queue), (&None, &None));
    assert_eq!((east.account.as_deref(), west.account.as_deref()), (None, Some("012345678901")));
    let of = |name: &str| classes.iter().find(|(known, _)| known.as_str() == name).unwrap().1;
    let training = of("training");
    assert_eq!((training.family, &training.image), (Family::Bottlerocket, &Image::Release("1.46.0".to_owned())));
    assert_eq!((training.disk_gib, training.throughput, training.iops), (500, Some(250), Some(3000)));
    assert_eq!(
        (training.local_disks, training.efa, training.node_names),
        (LocalDisks::Unused, Efa::All, NodeNames::InstanceId)
    );
    assert_eq!(of("own").image, Image::Parameter("/own/parameter".to_owned()));
    let usual = of("gpu");
    assert_eq!((usual.family, &usual.image, usual.disk_gib), (Family::Al2023, &Image::Newest, 105));
    assert_eq!((usual.local_disks, usual.efa, usual.node_names), (LocalDisks::Raid0, Efa::Off, NodeNames::PrivateDns));
}

const WRONG: &str = r#"
apiVersion: stoker.dev/v2
kind: AwsProvider
cluster: { name: "a b", endpoint: "http://10.0.0.1" }
regions:
- name: us-east-1
  subnets: {}
  securityGroups: { ids: [subnet-1] }
  assumeRole: { arn: stoker }
  endpoints: { ec2: "http://ec2.example" }
- name: us-east-1
  account: 1234
  subnets: { tags: { a: b }, ids: [subnet-1] }
  securityGroups: { ids: [sg-1] }
- name: eu-west-1
  account: "111111111111"
  assumeRole: { arn: "arn:aws:iam::222222222222:role/stoker" }
  subnets: { ids: [subnet-1] }
  securityGroups: { ids: [sg-1] }
- name: "us east 1"
  subnets: { ids: [subnet-1] }
  securityGroups: { ids: [sg-1] }
nodeClasses:
  "g p u": { instanceProfile: "" }
  gpu:
    instanceProfile: stoker-node
    image: { version: v1, id: my-image, ssm: /x }
    disk: { sizeGiB: 20, throughput: 5, iops: 5 }
    tags: { "stoker.dev/pool": x, "aws:x": y, "kubernetes.io/cluster/prod": owned, "": z }
  own:
    instanceProfile: stoker-node
    image: { family: custom }
  joined:
    instanceProfile: stoker-node
    image: { family: custom, id: ami-1 }
    userData: "kubeadm join --token @STOKER_TOKEN@ # @STOKER_LABELS@"
"#;

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    golden("config", "faults", &Config::parse("aws.yaml", WRONG).unwrap_err().to_string());
}

/// Faults of types, of fields, of endpoints and of values: each is found whatever else is wrong.
const MIXED: &str = r#"
apiVersion: stoker.dev/v1alpha1
kind: AwsSupplier
cluster:
  name: prod
  region: US East
  endpoint: https://10.0.0.1:6443
  certificateAuthority: 5
  serviceCidr: 10.100.0.5/16
  version: v1.33
regions:
- us-west-2
- name: us-east-1
  subnets: { ids: [subnet-1] }
  securityGroups: { ids: [sg-1] }
  interruptionQueue: https://sqs.us-east-1.amazonaws.com/111111111111/stoker-prod
  endpoints: { ec3: "https://x", s3: "https://x", cloud-watch: "monitoring.example", sqs: "https://x/queue", sts: 5 }
- name: us-east-2
  subnet: { ids: [subnet-1] }
  subnets: { ids: [subnet-1] }
  securityGroups: { ids: [sg-1] }
  interruptionQueue: arn:aws:sqs:us-east-2:111111111111:stoker prod
nodeClasses:
  big gpu: { instanceProfile: stoker-node }
  arn:
    instanceProfile: arn:aws:iam::111111111111:instance-profile/nodes/stoker-node
    disk: { sizeGiB: big, kmsKey: nodes }
  settings:
    instanceProfile: stoker node
    image: { family: bottlerocket }
    userData: |
      [settings.motd]
      text = hello
  mime:
    instanceProfile: stoker-node
    userData: |
      MIME-Version: 1.0
      Content-Type: multipart/mixed; boundary="x"
  nodeadm:
    instanceProfile: stoker-node
    userData: |
      apiVersion: v1
      kind: ConfigMap
  nodeadm-unread:
    instanceProfile: stoker-node
    userData: |
      kind: NodeConfig
      spec: {
  own:
    instanceProfile: stoker-node
    image: { family: custom }
    tags: 5
"#;

#[test]
fn faults_of_every_kind_come_at_once() {
    golden("config", "mixed", &Config::parse("aws.yaml", MIXED).unwrap_err().to_string());
}

/// Values that EC2 would refuse at the first launch, or that mean something else than they seem to.
const UNTRUE: &str = r#"
apiVersion: stoker.dev/v1alpha1
kind: AwsSupplier
cluster: { name: prod }
regions:
- name: us-east-1a
  subnets: { ids: [subnet-1, subnet-2, subnet-1] }
  securityGroups: { tags: { "": prod } }
nodeClasses:
  disks:
    instanceProfile: stoker-node
    disk: { throughput: 1000 }
    placementGroup: ""
    tags: { kubernetes.io/cluster/prod: owned }
  wide:
    instanceProfile: stoker-node
    disk: { sizeGiB: 110, throughput: 2000, iops: 80000 }
    image: { version: latest }
  rocket:
    instanceProfile: stoker-node
    image: { family: bottlerocket, version: v20260714 }
  amazon:
    instanceProfile: stoker-node
    image: { version: 1.46.0 }
  parameter:
    instanceProfile: stoker-node
    image: { ssm: aws/service/own }
  unlabelled:
    instanceProfile: stoker-node
    image: { family: custom, id: ami-1 }
    userData: "kubeadm join"
  long:
    instanceProfile: stoker-node
    userData: |
      #!/bin/sh
      LONG
"#;

#[test]
fn what_ec2_would_refuse_is_refused_before() {
    let text = UNTRUE.replace("LONG", &"x".repeat(16_384));
    golden("config", "untrue", &Config::parse("aws.yaml", &text).unwrap_err().to_string());
    let zones = text.replace("us-east-1a", "us-west-2-lax-1a");
    let zones = Config::parse("aws.yaml", &zones).unwrap_err().to_string();
    assert!(zones.contains("\"us-west-2-lax-1a\" is a zone: write its region, us-west-2\n"), "{zones}");
    for (good, better) in [
        ("disk: { throughput: 750, iops: 3000 }", "image: { ssm: own-image }"),
        ("disk: { sizeGiB: 160, iops: 80000, throughput: 2000 }", "image: { version: v20260714 }"),
    ] {
        Config::parse("aws.yaml", &file(&format!("    {good}\n    {better}\n"))).unwrap();
    }
}

#[test]
fn values_are_taken_in_each_form_that_aws_takes() {
    let keys = [
        "alias/nodes",
        "0d990263-018e-4e65-a703-eff731de951e",
        "mrk-1234abcd12ab34cd56ef1234567890ab",
        "arn:aws-cn:kms:cn-north-1:111111111111:key/0d990263-018e-4e65-a703-eff731de951e",
        "arn:aws:kms:us-east-1:111111111111:alias/nodes",
    ];
    for key in keys {
        Config::parse("aws.yaml", &file(&format!("    disk: {{ kmsKey: \"{key}\" }}\n"))).unwrap();
    }
    for cidr in ["10.100.0.0/16", "fd00:1::/108"] {
        Config::parse("aws.yaml", &FULL.replace("10.100.0.0/16", &format!("\"{cidr}\""))).unwrap();
    }
    for region in ["us-gov-west-1", "cn-north-1", "us-iso-east-1"] {
        Config::parse("aws.yaml", &FULL.replace("us-west-2", region)).unwrap();
    }
}

#[test]
fn fields_that_there_are_not_are_told_with_their_lines() {
    let unknown = FULL.replace("interruptionQueue", "interruptionQeue").replace("efa: all", "efa: some");
    golden("config", "unknown", &Config::parse("aws.yaml", &unknown).unwrap_err().to_string());
}

#[test]
fn a_file_that_says_nothing_is_told_what_it_lacks() {
    let empty = "apiVersion: stoker.dev/v1alpha1\nkind: AwsSupplier\ncluster: { name: prod }\nregions: []\nnodeClasses: {}\n";
    golden("config", "empty", &Config::parse("aws.yaml", empty).unwrap_err().to_string());
}
