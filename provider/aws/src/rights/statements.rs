//! The statements of the policy.

use std::collections::BTreeSet;

use stoker_core::base::ids::Region;
use stoker_core::catalogue::template::CLUSTER_LABEL;

use super::{Asked, Condition, Statement, Texts};
use crate::config::{Cluster, Config, Image, RegionConfig};
use crate::launch::KEY_TAG;

/// Kinds of resources that a launch makes, and tags.
const MADE: [&str; 4] = ["instance", "volume", "network-interface", "spot-instances-request"];

/// What EBS does with a key in the name of whoever launches.
const KEY_ACTIONS: [&str; 6] = [
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
];

/// How parameters begin that AWS publishes; they belong to no account.
const PUBLIC_PARAMETERS: &str = "/aws/";

/// A region of the file, as ARNs spell it.
struct Place<'a> {
    partition: &'static str,
    region: &'a str,
    account: &'a str,
    config: &'a RegionConfig,
}

impl<'a> Place<'a> {
    fn of((name, config): (&'a Region, &'a RegionConfig), asked: &'a Asked) -> Self {
        let region = name.as_str();
        // The role of another account makes machines there.
        let of_role = config.role.as_ref().and_then(|role| role.arn.split(':').nth(4)).filter(|account| !account.is_empty());
        let account = of_role.or(config.account.as_deref()).or(asked.account.as_deref()).unwrap_or("*");
        Self { partition: partition(name), region, account, config }
    }

    /// The ARN of something of the account.
    fn arn(&self, service: &str, resource: &str) -> String {
        format!("arn:{}:{service}:{}:{}:{resource}", self.partition, self.region, self.account)
    }

    /// The ARN of something of an account that need not be this one; none where it is AWS's.
    fn arn_of(&self, account: &str, service: &str, resource: &str) -> String {
        format!("arn:{}:{service}:{}:{account}:{resource}", self.partition, self.region)
    }

    /// A service as conditions name it there.
    fn service(&self, prefix: &str) -> Vec<String> {
        let everywhere = format!("{prefix}.amazonaws.com");
        if self.partition == "aws-cn" { vec![format!("{everywhere}.cn"), everywhere] } else { vec![everywhere] }
    }
}

/// The part of AWS that a region is in.
pub(super) fn partition(region: &Region) -> &'static str {
    match region.as_str() {
        china if china.starts_with("cn-") => "aws-cn",
        gov if gov.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}

/// The least that the supplier needs with this configuration.
pub(super) fn of(config: &Config, asked: &Asked) -> Vec<Statement> {
    let places: Vec<Place<'_>> = config.regions.iter().map(|region| Place::of(region, asked)).collect();
    let of_ours = |key: &str| equals(format!("aws:{key}/{CLUSTER_LABEL}"), [asked.cluster.as_str()]);
    let made = || each(&places, |place| MADE.map(|kind| place.arn("ec2", &format!("{kind}/*"))).to_vec());
    let groups: BTreeSet<&str> = config.classes.values().filter_map(|class| class.placement_group.as_deref()).collect();
    let from = each(&places, |place| {
        let mut from = vec![
            place.arn_of("", "ec2", "image/*"),
            place.arn_of("", "ec2", "snapshot/*"),
            place.arn("ec2", "subnet/*"),
            place.arn("ec2", "security-group/*"),
            // Other accounts share theirs.
            place.arn_of("*", "ec2", "capacity-reservation/*"),
        ];
        from.extend(groups.iter().map(|group| place.arn("ec2", &format!("placement-group/{group}"))));
        from
    });
    let launch_key = format!("{}/*", asked.cluster);
    let create = ["ec2:CreateTags"];
    let mut all = vec![
        allow("LaunchFrom", "What machines are made from.", ["ec2:RunInstances"], from),
        allow("LaunchTagged", "Machines that are tagged as this cluster's, and no others.", ["ec2:RunInstances"], made())
            .when(of_ours("RequestTag"))
            .when(condition("StringLike", format!("aws:RequestTag/{KEY_TAG}"), [launch_key.as_str()])),
        allow("TagAtLaunch", "Tags at launch; none on what exists.", create, made())
            .when(equals("ec2:CreateAction", ["RunInstances"]))
            .when(of_ours("RequestTag")),
        allow("EndOurs", "Machines of this cluster end and their consoles are read, and no others'.", ENDS, {
            each(&places, |place| vec![place.arn("ec2", "instance/*")])
        })
        .when(of_ours("ResourceTag")),
        allow("GiveNodesTheirRole", "The role that nodes run with.", ["iam:PassRole"], {
            each(&places, |place| {
                let arn = |role: &String| format!("arn:{}:iam::{}:role/{role}", place.partition, place.account);
                asked.node_roles.iter().map(arn).collect()
            })
        })
        .when(equals("iam:PassedToService", each(&places, |place| place.service("ec2")))),
        allow("Look", "EC2 limits these by region alone.", LOOK, ["*"]).when(in_regions(&places)),
    ];
    all.extend(images(config, &places));
    if config.cluster.known.is_none() {
        let Cluster { name, region, .. } = &config.cluster;
        let arn = |place: &Place| format!("arn:{}:eks:{region}:{}:cluster/{name}", place.partition, place.account);
        let clusters = each(&places, |place| vec![arn(place)]);
        all.push(allow("Cluster", "Endpoint, CA and version of the cluster.", ["eks:DescribeCluster"], clusters));
    }
    all.extend(disk_keys(config, &places));
    let queues = each(&places, |place| place.config.queue.iter().map(|queue| place.arn("sqs", queue)).collect());
    if !queues.is_empty() {
        let why = "Optional: notices within seconds. Without it the Spot requests are asked every ten seconds.";
        all.push(allow("Notices", why, ["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"], queues));
    }
    let why = "Optional: list prices of today, and savings plans for stoker commit. Without it those of Stoker's tables count.";
    all.push(allow("Prices", why, ["pricing:GetProducts", "savingsplans:DescribeSavingsPlans"], ["*"]));
    let quotas = ["servicequotas:GetServiceQuota", "servicequotas:GetAWSDefaultServiceQuota", "cloudwatch:GetMetricData"];
    let why = "Optional: quotas as AWS has them, and what of them is used. Without it those of the policy count.";
    all.push(allow("Quotas", why, quotas, ["*"]).when(in_regions(&places)));
    let roles = each(&places, |place| place.config.role.iter().map(|role| role.arn.clone()).collect());
    if !roles.is_empty() {
        let why =
            "Roles that aws.yaml names under assumeRole. They need the rest of this policy, and to trust Stoker's own role.";
        all.push(allow("ActAs", why, ["sts:AssumeRole"], roles));
    }
    all
}

/// The end of a machine, and what it said.
const ENDS: [&str; 2] = ["ec2:TerminateInstances", "ec2:GetConsoleOutput"];

/// Calls that change nothing, and that EC2 cannot limit to some resources.
const LOOK: [&str; 11] = [
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeReservedInstances",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
];

/// Parameters with the ids of images.
fn images(config: &Config, places: &[Place<'_>]) -> Option<Statement> {
    let named = |image: &Image| match image {
        Image::Newest | Image::Release(_) => Some(format!("{PUBLIC_PARAMETERS}service/*")),
        Image::Parameter(name) => Some(name.clone()),
        Image::Id(_) => None,
    };
    let parameters: BTreeSet<String> = config.classes.values().filter_map(|class| named(&class.image)).collect();
    let arn = |place: &Place<'_>, name: &String| {
        let resource = format!("parameter/{}", name.trim_start_matches('/'));
        match name {
            arn if arn.starts_with("arn:") => arn.clone(),
            public if public.starts_with(PUBLIC_PARAMETERS) => place.arn_of("", "ssm", &resource),
            _ => place.arn("ssm", &resource),
        }
    };
    let arns = each(places, |place| parameters.iter().map(|name| arn(place, name)).collect());
    (!arns.is_empty()).then(|| allow("Images", "Ids of images.", ["ssm:GetParameter"], arns))
}

/// Keys that encrypt root disks, by their ids and by their aliases.
fn disk_keys(config: &Config, places: &[Place<'_>]) -> Vec<Statement> {
    let named: BTreeSet<&str> = config.classes.values().filter_map(|class| class.kms_key.as_deref()).collect();
    let (mut keys, mut aliases) = (BTreeSet::new(), BTreeSet::new());
    for name in named {
        match (name.split_once(":alias/"), name.starts_with("alias/")) {
            (Some((_, alias)), _) => drop(aliases.insert(format!("alias/{alias}"))),
            (None, true) => drop(aliases.insert(name.to_owned())),
            (None, false) => drop(keys.insert(name)),
        }
    }
    let by_ec2 = || equals("kms:ViaService", each(places, |place| place.service(&format!("ec2.{}", place.region))));
    let mut statements = Vec::new();
    if !keys.is_empty() {
        let arn = |place: &Place<'_>, key: &str| {
            if key.starts_with("arn:") { key.to_owned() } else { place.arn("kms", &format!("key/{key}")) }
        };
        let arns = each(places, |place| keys.iter().map(|key| arn(place, key)).collect());
        statements.push(allow("DiskKeys", "Keys that encrypt root disks.", KEY_ACTIONS, arns).when(by_ec2()));
    }
    if !aliases.is_empty() {
        let arns = each(places, |place| vec![place.arn("kms", "key/*")]);
        let is_named = condition("ForAnyValue:StringEquals", "kms:ResourceAliases", aliases);
        let why = "Keys that encrypt root disks, by their aliases.";
        statements.push(allow("DiskKeysByAlias", why, KEY_ACTIONS, arns).when(by_ec2()).when(is_named));
    }
    statements
}

fn in_regions(places: &[Place<'_>]) -> Condition {
    equals("aws:RequestedRegion", places.iter().map(|place| place.region))
}

/// What every region has, each once and in the order of the regions.
fn each(places: &[Place<'_>], of: impl Fn(&Place<'_>) -> Vec<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    places.iter().flat_map(of).filter(|text| known.insert(text.clone())).collect()
}

fn allow<T: Into<String>>(
    sid: &'static str,
    why: &'static str,
    actions: impl IntoIterator<Item = &'static str>,
    resources: impl IntoIterator<Item = T>,
) -> Statement {
    Statement {
        sid,
        why,
        effect: "Allow",
        action: Texts(actions.into_iter().map(str::to_owned).collect()),
        resource: Texts(resources.into_iter().map(Into::into).collect()),
        condition: Vec::new(),
    }
}

fn equals<T: Into<String>>(variable: impl Into<String>, values: impl IntoIterator<Item = T>) -> Condition {
    condition("StringEquals", variable, values)
}

fn condition<T: Into<String>>(
    test: &'static str,
    variable: impl Into<String>,
    values: impl IntoIterator<Item = T>,
) -> Condition {
    Condition { test, variable: variable.into(), values: Texts(values.into_iter().map(Into::into).collect()) }
}

impl Statement {
    /// The same under one more condition.
    #[must_use]
    fn when(mut self, condition: Condition) -> Self {
        self.condition.push(condition);
        self
    }
}
