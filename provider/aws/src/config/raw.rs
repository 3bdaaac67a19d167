//! `aws.yaml` as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What nodes on EC2 are made with, and where.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "Stoker's file for AWS")]
pub struct RawAws {
    /// Format version: `stoker.dev/v1alpha1`.
    pub api_version: String,
    /// Always `AwsSupplier`.
    pub kind: String,
    /// The cluster that nodes join.
    pub cluster: RawCluster,
    /// Regions that machines are made in, each once. Take one out only when its machines have ended: after a restart nobody
    /// lists or ends them, and they stay on record.
    pub regions: Vec<RawRegion>,
    /// What machines are made with, by the name that a pool gives as `nodeClass`: up to 63 letters, digits, `-`, `_` and `.`.
    pub node_classes: BTreeMap<String, RawNodeClass>,
}

/// The cluster that nodes join. Of a cluster of EKS the name is enough.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawCluster {
    /// Its name in EKS. Machines are tagged with `clusterName` of the policy, which may be another.
    pub name: String,
    /// Its region in EKS. Default: the first of `regions`.
    #[serde(default)]
    #[schemars(example = "us-east-1")]
    pub region: Option<String>,
    /// The API server's address, of a cluster that is not of EKS.
    #[serde(default)]
    #[schemars(example = "https://10.0.0.1:6443")]
    pub endpoint: Option<String>,
    /// Who signs its certificate, in PEM, as base64.
    #[serde(default)]
    pub certificate_authority: Option<String>,
    /// Addresses of its services: a network in CIDR form.
    #[serde(default)]
    #[schemars(example = "10.100.0.0/16")]
    pub service_cidr: Option<String>,
    /// Kubernetes version of its nodes, which names their image.
    #[serde(default)]
    #[schemars(example = "1.33")]
    pub version: Option<String>,
}

/// A region that machines are made in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawRegion {
    /// Its name.
    #[schemars(example = "us-east-1")]
    pub name: String,
    /// Account that machines are made in, 12 digits in quotes. With credentials of any other nothing is launched there, and no listing of theirs
    /// counts. Default: whichever the first credentials are of.
    #[serde(default)]
    #[schemars(example = "111111111111")]
    pub account: Option<String>,
    /// Subnets of machines: a zone without one sells nothing.
    pub subnets: RawChoice,
    /// Security groups of machines.
    pub security_groups: RawChoice,
    /// Name of the queue of SQS with EC2's notices, of the same account and region and of this cluster alone. Left out, the Spot requests are
    /// asked every ten seconds.
    #[serde(default)]
    pub interruption_queue: Option<String>,
    /// Role to act in. Default: the one that Stoker's own credentials have.
    #[serde(default)]
    pub assume_role: Option<RawRole>,
    /// Addresses of services that are not at their own, such as endpoints of the VPC, by `ec2`, `sts`, `eks`, `ssm`, `sqs`,
    /// `service-quotas`, `pricing`, `cloud-watch` or `savings-plans`.
    #[serde(default)]
    pub endpoints: BTreeMap<String, String>,
}

/// Which ones: by their tags, or by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawChoice {
    /// All that bear each of these tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Just these.
    #[serde(default)]
    pub ids: Vec<String>,
}

/// A role to act in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawRole {
    /// Its ARN.
    #[schemars(example = "arn:aws:iam::222222222222:role/stoker")]
    pub arn: String,
    /// What its trust policy asks for.
    #[serde(default)]
    pub external_id: Option<String>,
}

/// What machines are made with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawNodeClass {
    /// Name of the instance profile with the nodes' role. Stoker makes none.
    pub instance_profile: String,
    /// What they boot. Default: the newest image of AL2023 for the cluster's version.
    #[serde(default)]
    pub image: RawImage,
    /// Root disk, of kind gp3 and encrypted.
    #[serde(default)]
    pub disk: RawDisk,
    /// What becomes of disks that come with the instance type. Default: `raid0`.
    #[serde(default)]
    pub local_disks: LocalDisks,
    /// Elastic Fabric Adapter between machines. Default: `off`.
    #[serde(default)]
    pub efa: Efa,
    /// Placement group to launch in. It narrows what is in stock.
    #[serde(default)]
    pub placement_group: Option<String>,
    /// What Nodes are called. Default: `private-dns`.
    #[serde(default)]
    pub node_names: NodeNames,
    /// More user data. For AL2023 a script that begins with `#!`, or a `NodeConfig` that Stoker's is laid over; for Bottlerocket TOML that
    /// Stoker's is laid over; for a custom image all of it, with the markers of boot templates, of which `@STOKER_LABELS@` or
    /// `@STOKER_TAINTS@` must be there. EC2 takes 16 KiB with what Stoker adds.
    #[serde(default)]
    pub user_data: Option<String>,
    /// Tags of machines, volumes and network interfaces, beside Stoker's own.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

/// What machines boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawImage {
    /// The operating system, which says what its user data looks like. Default: `al2023`.
    #[serde(default)]
    pub family: Family,
    /// Release of the image that AWS makes, such as `v20260714` for AL2023 and `1.46.0` for Bottlerocket. Default: the newest when
    /// Stoker starts.
    #[serde(default)]
    pub version: Option<String>,
    /// The image itself.
    #[serde(default)]
    #[schemars(example = "ami-0123456789abcdef0")]
    pub id: Option<String>,
    /// Parameter of SSM that holds the image's id.
    #[serde(default)]
    pub ssm: Option<String>,
}

/// A root disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawDisk {
    /// Its size, at least 105, of which node templates promise 100. Default: 105.
    #[serde(default, rename = "sizeGiB")]
    pub size_gib: Option<u32>,
    /// MiB a second, 125 to 2000 and at most a quarter of `iops`. Default: AWS's.
    #[serde(default)]
    pub throughput: Option<u32>,
    /// Operations a second, 3000 to 80000 and at most 500 a GiB. Default: AWS's.
    #[serde(default)]
    pub iops: Option<u32>,
    /// Key of KMS that encrypts it: `alias/…`, its id, or its ARN. Default: the account's for EBS.
    #[serde(default)]
    pub kms_key: Option<String>,
}

/// What becomes of disks that come with the instance type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LocalDisks {
    /// One RAID 0 of all of them holds pods and images.
    #[default]
    Raid0,
    /// Nothing: pods and images are on the root disk.
    Unused,
}

/// Elastic Fabric Adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Efa {
    /// None.
    #[default]
    Off,
    /// As many as the instance type has.
    All,
}

/// What Nodes are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeNames {
    /// By the machine's private DNS name.
    #[default]
    PrivateDns,
    /// By the machine's id. The nodes' role needs an access entry of type `EC2` for it.
    InstanceId,
}

/// The operating system of machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Amazon Linux 2023 as EKS optimizes it.
    #[default]
    Al2023,
    /// Bottlerocket.
    Bottlerocket,
    /// An image of the operator's own.
    Custom,
}
