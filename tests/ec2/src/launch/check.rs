//! What EC2 refuses of a launch by looking at the request alone, and at what it names.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::TypeInfo;
use crate::launch::unauthorized;
use crate::machine::{Interface, Market};
use crate::region::{Region, ReservationKind, Subnet, Tags};
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;

/// The most bytes of user data, before they are encoded.
const USER_DATA: usize = 16_384;

/// A launch that may be had, if there is room.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) account: String,
    pub(crate) region: String,
    pub(crate) zone_id: String,
    pub(crate) subnet: String,
    pub(crate) vpc: String,
    pub(crate) instance_type: TypeInfo,
    pub(crate) image: String,
    pub(crate) market: Market,
    /// The highest Spot price in billionths of a dollar.
    pub(crate) most: Option<u64>,
    pub(crate) preference: String,
    pub(crate) target: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) profile: Option<String>,
    pub(crate) user_data: String,
}

/// The tags that a launch gives to a kind of resource.
pub(crate) fn tags(asked: &Asked, kind: &str) -> Tags {
    let specifications = asked.structures("TagSpecification").into_iter();
    let of_kind = specifications.filter(|prefix| asked.get(&format!("{prefix}.ResourceType")) == Some(kind));
    let tags = of_kind.flat_map(|prefix| asked.structures(&format!("{prefix}.Tag")));
    let pair = |prefix: String| {
        let value = asked.get(&format!("{prefix}.Value")).unwrap_or_default();
        Some((asked.get(&format!("{prefix}.Key"))?.to_owned(), value.to_owned()))
    };
    tags.filter_map(pair).collect()
}

/// Addresses that network interfaces take of their subnet.
pub(crate) fn addresses(interfaces: &[Interface]) -> u32 {
    let with_address = interfaces.iter().filter(|interface| interface.kind != "efa-only").count();
    u32::try_from(with_address).unwrap_or(u32::MAX)
}

/// A price in billionths of a dollar.
pub(crate) fn billionths(price: &str) -> Option<u64> {
    let (whole, part) = price.split_once('.').unwrap_or((price, ""));
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = format!("{part:0<9}").get(..9)?.parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(part)
}

/// The subnet of a launch, which settles its zone.
pub(crate) fn subnet<'a>(region: &'a Region, asked: &Asked) -> Result<&'a Subnet, Refusal> {
    let beside = asked.get("SubnetId");
    let inside = asked.get("NetworkInterface.1.SubnetId");
    if beside.is_some() && !asked.structures("NetworkInterface").is_empty() {
        let message = "Network interfaces and an instance-level subnet ID may not be specified on the same request";
        return Err(Refusal::bad("InvalidParameterCombination", message));
    }
    let Some(id) = inside.or(beside) else {
        return Err(Refusal::bad("VPCIdNotSpecified", "No default VPC for this user"));
    };
    let found = region.subnets.get(id);
    let subnet =
        found.ok_or_else(|| Refusal::bad("InvalidSubnetID.NotFound", format!("The subnet ID '{id}' does not exist")))?;
    let zone = region.zone_name(&subnet.zone_id);
    if asked.get("Placement.AvailabilityZone").is_some_and(|wanted| wanted != zone) {
        return Err(Refusal::value(format!("The subnet '{id}' is not in the zone that the placement names")));
    }
    Ok(subnet)
}

impl World {
    /// Refuses a launch whose tags the policy does not allow.
    pub(super) fn check_tags(&self, asked: &Asked) -> Result<(), Refusal> {
        let Some(cluster) = &self.require_tags else { return Ok(()) };
        let is_spot = asked.get("InstanceMarketOptions.MarketType") == Some("spot");
        let kinds = ["instance", "volume", "network-interface", "spot-instances-request"];
        let are_ours = kinds.into_iter().take(if is_spot { 4 } else { 3 }).all(|kind| {
            let tags = tags(asked, kind);
            let key = tags.get("stoker.dev/launch-key");
            tags.get("stoker.dev/cluster") == Some(cluster)
                && key.is_some_and(|key| key.strip_prefix(cluster.as_str()).is_some_and(|rest| rest.starts_with('/')))
        });
        if are_ours { Ok(()) } else { Err(unauthorized()) }
    }

    /// Looks at a launch into a subnet.
    pub(super) fn check_launch(&self, region: &Region, asked: &Asked, subnet: &str) -> Result<Wanted, Refusal> {
        let subnet = region.subnets.get(subnet).ok_or_else(|| Refusal::bad("InvalidSubnetID.NotFound", "no subnet"))?;
        for name in ["MinCount", "MaxCount"] {
            match asked.get(name) {
                Some("1") => {}
                None => return Err(Refusal::bad("MissingParameter", format!("The request must contain the parameter {name}"))),
                Some(_) => return Err(Refusal::value("this peer launches one machine a call")),
            }
        }
        if asked.get("ClientToken").is_some_and(|token| token.len() > 64 || !token.is_ascii()) {
            return Err(Refusal::value("The client token is longer than 64 ASCII characters"));
        }
        let instance_type = self.checked_type(asked)?;
        let groups = checked_groups(region, asked, subnet)?;
        let image = checked_image(region, asked, &instance_type)?;
        let profile = asked.get("IamInstanceProfile.Name").map(ToOwned::to_owned);
        if let Some(name) = profile.as_ref().filter(|name| !region.profiles.contains(*name)) {
            let message = "for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
            return Err(Refusal::value(format!("Value ({name}) {message}")));
        }
        let (market, most) = checked_market(region, asked)?;
        let preference = "CapacityReservationSpecification.CapacityReservationPreference";
        let target = "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId";
        let wanted = Wanted {
            account: asked.account.clone(),
            region: asked.region.clone(),
            zone_id: subnet.zone_id.clone(),
            subnet: subnet.id.clone(),
            vpc: subnet.vpc.clone(),
            interfaces: checked_interfaces(asked, &instance_type)?,
            instance_type,
            image,
            market,
            most,
            preference: asked.get(preference).unwrap_or("open").to_owned(),
            target: asked.get(target).map(ToOwned::to_owned),
            groups,
            profile,
            user_data: checked_user_data(asked)?,
        };
        checked_tags(region, asked)?;
        checked_target(region, &wanted)?;
        Ok(wanted)
    }

    fn checked_type(&self, asked: &Asked) -> Result<TypeInfo, Refusal> {
        let name = asked.get("InstanceType").unwrap_or("m1.small");
        let found = self.types.get(name).cloned();
        found.ok_or_else(|| Refusal::value(format!("Invalid value '{name}' for InstanceType.")))
    }
}

fn checked_groups(region: &Region, asked: &Asked, subnet: &Subnet) -> Result<Vec<String>, Refusal> {
    let mut groups: Vec<&str> = asked.list("NetworkInterface.1.SecurityGroupId");
    let beside = asked.list("SecurityGroupId");
    if !beside.is_empty() && !asked.structures("NetworkInterface").is_empty() {
        let message = "Network interfaces and an instance-level security groups may not be specified on the same request";
        return Err(Refusal::bad("InvalidParameterCombination", message));
    }
    groups.extend(beside);
    for id in &groups {
        match region.groups.get(*id) {
            None => return Err(Refusal::bad("InvalidGroup.NotFound", format!("The security group '{id}' does not exist"))),
            Some(group) if group.vpc != subnet.vpc => {
                let message = format!("Security group {id} and subnet {} belong to different networks.", subnet.id);
                return Err(Refusal::bad("InvalidParameter", message));
            }
            Some(_) => {}
        }
    }
    Ok(groups.into_iter().map(ToOwned::to_owned).collect())
}

fn checked_image(region: &Region, asked: &Asked, instance_type: &TypeInfo) -> Result<String, Refusal> {
    let id = asked
        .get("ImageId")
        .ok_or_else(|| Refusal::bad("MissingParameter", "The request must contain the parameter ImageId"))?;
    if !id.starts_with("ami-") {
        return Err(Refusal::bad("InvalidAMIID.Malformed", format!("Invalid id: \"{id}\" (expecting \"ami-...\")")));
    }
    let image = region.images.get(id);
    let image = image.ok_or_else(|| Refusal::bad("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist")))?;
    if image.arch != instance_type.arch {
        return Err(Refusal::value(format!(
            "The architecture '{}' of the specified instance type does not match the architecture '{}' of the specified AMI. \
             Specify an instance type and an AMI that have matching architectures, and try again.",
            instance_type.arch, image.arch
        )));
    }
    Ok(id.to_owned())
}

fn checked_market(region: &Region, asked: &Asked) -> Result<(Market, Option<u64>), Refusal> {
    let market = match asked.get("InstanceMarketOptions.MarketType") {
        None => Market::OnDemand,
        Some("spot") => Market::Spot,
        Some("capacity-block") => Market::Block,
        Some(other) => return Err(Refusal::value(format!("Invalid value '{other}' for MarketType."))),
    };
    if market == Market::Spot && !region.spot_role {
        let message =
            "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.";
        return Err(Refusal::new(403, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", message));
    }
    let most = asked.get("InstanceMarketOptions.SpotOptions.MaxPrice");
    let price = |text: &str| billionths(text).filter(|price| *price >= 1_000_000);
    match most.map(price) {
        Some(None) => Err(Refusal::value("The Spot price must be at least $0.001")),
        most => Ok((market, most.flatten())),
    }
}

fn checked_interfaces(asked: &Asked, instance_type: &TypeInfo) -> Result<Vec<Interface>, Refusal> {
    let mut interfaces = Vec::new();
    for prefix in asked.structures("NetworkInterface") {
        let number = |name: &str| asked.get(&format!("{prefix}.{name}")).map_or(Some(0), |text| text.parse::<u32>().ok());
        let (Some(card), Some(device)) = (number("NetworkCardIndex"), number("DeviceIndex")) else {
            return Err(Refusal::value("An index of a network interface is not a number"));
        };
        let kind = asked.get(&format!("{prefix}.InterfaceType")).unwrap_or("interface").to_owned();
        if card >= instance_type.cards {
            return Err(Refusal::value(format!("{} has no network card {card}", instance_type.name)));
        }
        interfaces.push(Interface { card, device, kind });
    }
    if interfaces.is_empty() {
        interfaces.push(Interface { card: 0, device: 0, kind: "interface".to_owned() });
    }
    let combination = |message: &str| Err(Refusal::bad("InvalidParameterCombination", message));
    let primary = interfaces.iter().filter(|interface| (interface.card, interface.device) == (0, 0));
    if primary.filter(|interface| interface.kind != "efa-only").count() != 1 {
        return combination("There must be one primary network interface, of card 0 and device 0, and it must have an address");
    }
    for (index, interface) in interfaces.iter().enumerate() {
        let same = |of: &Interface| (of.card, of.device) == (interface.card, interface.device);
        if interfaces.iter().skip(index + 1).any(same) {
            return combination("Two network interfaces have the same card and device");
        }
        let on_card = interfaces.iter().filter(|of| of.card == interface.card).count();
        if on_card > usize::try_from(instance_type.interfaces_of_card_0).unwrap_or(usize::MAX) {
            let message = format!("Interface count {on_card} exceeds the limit for {}", instance_type.name);
            return Err(Refusal::bad("AttachmentLimitExceeded", message));
        }
    }
    let efa = interfaces.iter().filter(|interface| interface.kind.starts_with("efa")).count();
    if efa > usize::try_from(instance_type.efa_interfaces).unwrap_or(usize::MAX) {
        return combination("The instance type has fewer EFA interfaces");
    }
    if interfaces.len() > 1 && asked.is_true("NetworkInterface.1.AssociatePublicIpAddress") {
        return combination(
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
        );
    }
    Ok(interfaces)
}

fn checked_user_data(asked: &Asked) -> Result<String, Refusal> {
    let encoded = asked.get("UserData").unwrap_or_default();
    let decoded = BASE64_STANDARD.decode(encoded);
    let decoded = decoded.map_err(|_| Refusal::bad("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data."))?;
    if decoded.len() > USER_DATA {
        return Err(Refusal::value(format!("User data is limited to {USER_DATA} bytes")));
    }
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

fn checked_tags(region: &Region, asked: &Asked) -> Result<(), Refusal> {
    for kind in ["instance", "volume", "network-interface", "spot-instances-request"] {
        let tags = tags(asked, kind);
        if tags.len() > 50 {
            return Err(Refusal::bad("TagLimitExceeded", "More than 50 tags"));
        }
        for (key, value) in tags {
            if key.starts_with("aws:") || key.chars().count() > 128 || value.chars().count() > 256 {
                return Err(Refusal::value(format!("The tag '{key}' is reserved or too long")));
            }
            let is_shown = match asked.get("MetadataOptions.InstanceMetadataTags") {
                Some(choice) => choice == "enabled",
                None => region.shows_tags,
            };
            if kind == "instance" && is_shown && key.contains('/') {
                let message = "is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255})";
                return Err(Refusal::value(format!("'{key}' {message}")));
            }
        }
    }
    Ok(())
}

/// Refuses a reservation that is not there, or that the launch cannot use.
fn checked_target(region: &Region, wanted: &Wanted) -> Result<(), Refusal> {
    let Some(id) = &wanted.target else {
        return match wanted.market {
            Market::Block => Err(Refusal::bad("MissingParameter", "A launch into a capacity block must name the block")),
            _ => Ok(()),
        };
    };
    let Some(reservation) = region.reservations.get(id) else {
        let message = format!("The capacity reservation '{id}' does not exist");
        return Err(Refusal::bad("InvalidCapacityReservationId.NotFound", message));
    };
    let fits = reservation.instance_type == wanted.instance_type.name && reservation.zone_id == wanted.zone_id;
    let is_right_market = (reservation.kind == ReservationKind::Block) == (wanted.market == Market::Block);
    if wanted.market == Market::Spot || !is_right_market {
        return Err(Refusal::bad("InvalidParameterCombination", "The market does not fit the capacity reservation"));
    }
    if !fits {
        return Err(Refusal::value(format!("The type or zone does not fit the capacity reservation '{id}'")));
    }
    Ok(())
}
