//! The call that makes a machine: a function of the launch alone, so that a retry is the same request.

use std::collections::BTreeMap;

use stoker_core::base::ids::{ClusterName, LaunchKey, NodeClassName};
use stoker_core::base::sabotage;
use stoker_core::catalogue::template::{CLUSTER_LABEL, GROUP_LABEL, POOL_LABEL};
use stoker_core::market::offer::{CapacityType, Network};
use stoker_service::suppliers::Launch;

use crate::config::{Efa, Family, NodeClass};
use crate::outdated;
use crate::wire::Form;

/// The tag with the launch key.
pub(crate) const KEY_TAG: &str = "stoker.dev/launch-key";
/// The tag with how it was bought.
pub(crate) const CAPACITY_TYPE_TAG: &str = "stoker.dev/capacity-type";
/// The tag with what it was made with.
pub(crate) const NODE_CLASS_TAG: &str = "stoker.dev/node-class";
/// The tag with the reservation that it was bought from.
const COMMITMENT_TAG: &str = "stoker.dev/commitment";

/// Longest value of a tag.
const LONGEST_TAG: usize = 256;

/// How tokens begin, and how many digits follow: EC2 takes 64 characters.
const TOKEN_PREFIX: &str = "stk1-";
const TOKEN_DIGITS: usize = 56;

/// What a launch becomes.
#[derive(Debug)]
pub(crate) struct Ordered<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) class_name: &'a NodeClassName,
    pub(crate) class: &'a NodeClass,
    pub(crate) cluster: &'a ClusterName,
    /// The cluster's name in EKS.
    pub(crate) eks: &'a str,
    pub(crate) token: &'a str,
    pub(crate) image: &'a str,
    pub(crate) subnet: &'a str,
    pub(crate) groups: &'a [String],
    /// The reservation, and whether it is a capacity block; `None` where it is bought from none.
    pub(crate) reservation: Option<(&'a str, bool)>,
    /// Base64.
    pub(crate) user_data: &'a str,
}

/// The token of a launch: the same for the same key, for ever. EC2 makes one machine for it in a zone, and a key has one zone.
pub(crate) fn token(account: &str, region: &str, key: &LaunchKey) -> String {
    let hash = blake3::hash(format!("aws\0{account}\0{region}\0{key}").as_bytes()).to_hex();
    format!("{TOKEN_PREFIX}{}", hash.chars().take(TOKEN_DIGITS).collect::<String>())
}

impl Ordered<'_> {
    /// The parameters of `RunInstances`.
    ///
    /// # Errors
    /// What EC2 would not take; in words.
    pub(crate) fn form(&self) -> Result<Form, String> {
        let Self { launch, class, token, image, user_data, .. } = self;
        let market = &launch.request.market;
        let mut form = Form::ec2("RunInstances")
            .with("ImageId", *image)
            .with("InstanceType", market.place.instance_type.as_str())
            .with("MinCount", "1")
            .with("MaxCount", "1")
            .with("UserData", *user_data)
            .with("IamInstanceProfile.Name", &class.instance_profile)
            // By default a machine that shuts itself down stays, and its disks are paid for.
            .with("InstanceInitiatedShutdownBehavior", "terminate")
            .with("MetadataOptions.HttpEndpoint", "enabled")
            .with("MetadataOptions.HttpTokens", "required")
            // The probe reads notices, and is not on the host's network.
            .with("MetadataOptions.HttpPutResponseHopLimit", "2")
            // Keys with a slash cannot be shown there, and an account whose default shows them would fail every launch.
            .with("MetadataOptions.InstanceMetadataTags", "disabled");
        if !sabotage::on("aws-no-client-token") {
            form.set("ClientToken", *token);
        }
        if let Some(group) = &class.placement_group {
            form.set("Placement.GroupName", group);
        }
        self.disk(&mut form);
        self.interfaces(&mut form);
        self.market(&mut form);
        self.tags(&mut form)?;
        Ok(form)
    }

    fn disk(&self, form: &mut Form) {
        let class = self.class;
        // Bottlerocket keeps its system on a disk of its own.
        let device = if class.family == Family::Bottlerocket { "/dev/xvdb" } else { "/dev/xvda" };
        form.set("BlockDeviceMapping.1.DeviceName", device);
        let mut set = |name: &str, value: String| form.set(format!("BlockDeviceMapping.1.Ebs.{name}"), value);
        set("VolumeType", "gp3".to_owned());
        set("VolumeSize", class.disk_gib.to_string());
        set("Encrypted", "true".to_owned());
        set("DeleteOnTermination", "true".to_owned());
        let optional = [
            ("Throughput", class.throughput.map(|mib| mib.to_string())),
            ("Iops", class.iops.map(|iops| iops.to_string())),
            ("KmsKeyId", class.kms_key.clone()),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                set(name, value);
            }
        }
    }

    /// One interface with an address; with EFA one more on each card that has one, which takes none.
    fn interfaces(&self, form: &mut Form) {
        let network = self.launch.spec.as_ref().and_then(|spec| spec.network);
        let efa = network.filter(|_| self.class.efa == Efa::All).filter(|network| network.efa_interfaces > 0);
        // Where not every card has one, the first has none: it is the one with the address.
        let cards = efa.map_or(0..0, |Network { cards, efa_interfaces, .. }| cards.saturating_sub(efa_interfaces)..cards);
        let has_efa = !cards.is_empty();
        let plain = (0, 0, None);
        let of_card = |card| (card, u32::from(card == 0), Some("efa-only"));
        for (at, (card, device, kind)) in std::iter::once(plain).chain(cards.map(of_card)).enumerate() {
            let interface = format!("NetworkInterface.{}", at + 1);
            let mut set = |name: &str, value: &str| form.set(format!("{interface}.{name}"), value);
            set("DeviceIndex", &device.to_string());
            set("SubnetId", self.subnet);
            for (at, group) in self.groups.iter().enumerate() {
                set(&format!("SecurityGroupId.{}", at + 1), group);
            }
            set("DeleteOnTermination", "true");
            if has_efa {
                set("NetworkCardIndex", &card.to_string());
            }
            if let Some(kind) = kind {
                set("InterfaceType", kind);
            }
        }
    }

    fn market(&self, form: &mut Form) {
        let mut set = |name: &str, value: &str| form.set(name, value);
        if self.launch.request.market.capacity_type == CapacityType::Spot {
            set("InstanceMarketOptions.MarketType", "spot");
            set("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
            set("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior", "terminate");
        }
        match self.reservation {
            Some((id, is_block)) => {
                if is_block {
                    set("InstanceMarketOptions.MarketType", "capacity-block");
                }
                // Fails where it is full, and does not fall through to on-demand.
                set("CapacityReservationSpecification.CapacityReservationPreference", "capacity-reservations-only");
                set("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", id);
            }
            None if sabotage::on("aws-preference-open") => {}
            // By default it would slip into any open reservation of the account, which a reserved launch then finds full.
            None => set("CapacityReservationSpecification.CapacityReservationPreference", "none"),
        }
    }

    fn tags(&self, form: &mut Form) -> Result<(), String> {
        let Self { launch, class_name, class, cluster, eks, .. } = self;
        let request = &launch.request;
        let mut tags: BTreeMap<&str, String> = class.tags.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        tags.insert(CLUSTER_LABEL, cluster.to_string());
        tags.insert(KEY_TAG, request.key.to_string());
        let kinds = if request.market.capacity_type == CapacityType::Spot { 4 } else { 3 };
        for (at, kind) in ["instance", "volume", "network-interface", "spot-instances-request"].iter().take(kinds).enumerate() {
            let mut tags = tags.clone();
            if ["instance", "volume"].contains(kind) {
                tags.insert(GROUP_LABEL, request.group.to_string());
                tags.insert(NODE_CLASS_TAG, outdated::tag(class_name, class));
                tags.insert(CAPACITY_TYPE_TAG, request.market.capacity_type.to_string());
                let pool = launch.labels.get(POOL_LABEL).map(|pool| (POOL_LABEL, pool.clone()));
                tags.extend(pool.into_iter().chain(request.reservation.clone().map(|name| (COMMITMENT_TAG, name))));
            }
            let eks_tag = format!("kubernetes.io/cluster/{eks}");
            if ["instance", "network-interface"].contains(kind) {
                tags.insert(&eks_tag, "owned".to_owned());
            }
            if *kind == "instance" {
                tags.entry("Name").or_insert_with(|| format!("{cluster}/{}", request.group));
            }
            let specification = format!("TagSpecification.{}", at + 1);
            form.set(format!("{specification}.ResourceType"), *kind);
            for (at, (key, value)) in tags.iter().enumerate() {
                // Ours but for the name of the machine are what it is known by.
                if value.chars().count() > LONGEST_TAG {
                    return Err(format!(
                        "the value of its tag {key} is longer than EC2 takes: shorten the names of cluster and pool"
                    ));
                }
                form.set(format!("{specification}.Tag.{}.Key", at + 1), *key);
                form.set(format!("{specification}.Tag.{}.Value", at + 1), value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
