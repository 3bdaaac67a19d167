//! Machines: how they are listed and ended.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::network::all_known;
use super::{Answer, Values, is_like, one, page, tag_values};
use crate::machine::{Machine, State};
use crate::region::Region;
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;
use crate::xml::Xml;

/// The filters of `DescribeInstances` that this peer knows, but for those of tags.
const FILTERS: [&str; 16] = [
    "availability-zone",
    "availability-zone-id",
    "capacity-reservation-id",
    "client-token",
    "image-id",
    "instance-id",
    "instance-lifecycle",
    "instance-state-name",
    "instance-type",
    "network-interface.subnet-id",
    "owner-id",
    "private-dns-name",
    "reservation-id",
    "spot-instance-request-id",
    "subnet-id",
    "vpc-id",
];

impl World {
    /// Machines of the account and region that listings show, with the state that they show.
    pub(super) fn listed(&self, asked: &Asked, now: Timestamp) -> impl Iterator<Item = (&Machine, State)> {
        let lag = self.listing_lag;
        let here = self.machines.values().filter(|machine| machine.account == asked.account && machine.region == asked.region);
        here.filter_map(move |machine| Some((machine, machine.listed_state(now, lag)?)))
    }

    /// Refuses ids that are malformed or not listed.
    pub(super) fn known_machines(&self, asked: &Asked, ids: &[&str], now: Timestamp) -> Result<(), Refusal> {
        let is_hex =
            |id: &str| id.strip_prefix("i-").is_some_and(|id| id.len() >= 8 && id.chars().all(|c| c.is_ascii_hexdigit()));
        if let Some(id) = ids.iter().find(|id| !is_hex(id)) {
            return Err(Refusal::bad("InvalidInstanceID.Malformed", format!("Invalid id: \"{id}\"")));
        }
        let listed: BTreeSet<&str> = self.listed(asked, now).map(|(machine, _)| machine.id.as_str()).collect();
        all_known(ids, |id| listed.contains(id), "InvalidInstanceID.NotFound", "instance")
    }

    pub(super) fn describe_instances(&self, asked: &Asked, now: Timestamp) -> Answer {
        let region = self.asked_region(asked)?;
        let ids = asked.list("InstanceId");
        if !ids.is_empty() && asked.get("MaxResults").is_some() {
            let message = "The parameter instancesSet cannot be used with the parameter maxResults";
            return Err(Refusal::bad("InvalidParameterCombination", message));
        }
        self.known_machines(asked, &ids, now)?;
        let filters = asked.filters();
        let is_tag = |name: &str| name == "tag-key" || name.starts_with("tag:");
        if let Some((name, _)) = filters.iter().find(|(name, _)| !is_tag(name) && !FILTERS.contains(&name.as_str())) {
            return Err(Refusal::value(format!("The filter '{name}' is invalid")));
        }
        let passes = |machine: &Machine, state: State| {
            filters.iter().all(|(name, wanted)| {
                let values = values(machine, state, name).unwrap_or_default();
                values.iter().any(|value| wanted.iter().any(|wanted| is_like(value, wanted)))
            })
        };
        let listed = self.listed(asked, now).filter(|(machine, _)| ids.is_empty() || ids.contains(&machine.id.as_str()));
        let found: Vec<_> = listed.filter(|(machine, state)| passes(machine, *state)).collect();
        let page = page(self, asked, found, |(machine, _)| machine.id.clone())?;
        Ok(page.write("reservationSet", |xml, (machine, state)| {
            xml.text("reservationId", reservation_id(machine));
            xml.text("ownerId", &machine.account);
            xml.items("groupSet", [(); 0], |_, ()| {});
            xml.items("instancesSet", [machine], |xml, machine| self.write_machine(xml, region, machine, state, now));
        }))
    }

    /// A machine as listings and `RunInstances` give it.
    pub(crate) fn write_machine(&self, xml: &mut Xml, region: &Region, machine: &Machine, state: State, now: Timestamp) {
        let has_name = state == State::Running || (state == State::Pending && !self.names_late);
        let ended = matches!(state, State::ShuttingDown | State::Terminated);
        xml.text("instanceId", &machine.id);
        xml.text("imageId", &machine.image);
        xml.node("instanceState", |xml| {
            xml.text("code", state.parts().0);
            xml.text("name", state.parts().1);
        });
        xml.text("privateDnsName", if has_name { machine.private_dns.as_str() } else { "" });
        xml.text("dnsName", "");
        let end = machine.ended.as_ref().filter(|_| ended);
        xml.text("reason", end.map(|end| end.message.as_str()).unwrap_or_default());
        xml.text("amiLaunchIndex", 0);
        xml.items("productCodes", [(); 0], |_, ()| {});
        xml.text("instanceType", &machine.instance_type);
        xml.time("launchTime", machine.launched);
        xml.node("placement", |xml| {
            xml.text("availabilityZone", &machine.zone);
            xml.text("availabilityZoneId", &machine.zone_id);
            xml.text("groupName", machine.request.get("Placement.GroupName").map(String::as_str).unwrap_or_default());
            xml.text("tenancy", machine.request.get("Placement.Tenancy").map_or("default", String::as_str));
        });
        xml.node("monitoring", |xml| xml.text("state", "disabled"));
        if state != State::Terminated {
            xml.text("subnetId", &machine.subnet);
            xml.text("vpcId", &machine.vpc);
            xml.text("privateIpAddress", &machine.private_ip);
        }
        xml.items("groupSet", &machine.groups, |xml, id| {
            xml.text("groupId", id);
            xml.some("groupName", region.groups.get(id).map(|group| &group.name));
        });
        if let Some(end) = end {
            xml.node("stateReason", |xml| {
                xml.text("code", &end.code);
                xml.text("message", &end.message);
            });
        }
        xml.text("architecture", &machine.arch);
        xml.text("rootDeviceType", "ebs");
        xml.text("rootDeviceName", "/dev/xvda");
        xml.text("virtualizationType", "hvm");
        xml.text("clientToken", &machine.token);
        xml.some("instanceLifecycle", machine.market.lifecycle());
        xml.some("spotInstanceRequestId", machine.spot_request.as_ref());
        xml.tags(&machine.tags);
        xml.text("hypervisor", "xen");
        xml.some_node("iamInstanceProfile", machine.profile.as_ref(), |xml, profile| {
            xml.text("arn", format!("arn:aws:iam::{}:instance-profile/{profile}", machine.account));
        });
        // A reservation that has ended or was cancelled leaves its machines running as on-demand ones.
        let reservation = machine.reservation.as_ref().and_then(|id| region.reservations.get(id));
        xml.some("capacityReservationId", reservation.filter(|of| of.state(now) == "active").map(|of| &of.id));
        xml.node("capacityReservationSpecification", |xml| {
            xml.text("capacityReservationPreference", &machine.preference);
            xml.some_node("capacityReservationTarget", machine.target.as_ref(), |xml, target| {
                xml.text("capacityReservationId", target);
            });
        });
    }

    pub(super) fn terminate_instances(&mut self, asked: &Asked, now: Timestamp) -> Answer {
        let ids = asked.list("InstanceId");
        self.named_to_end.extend(ids.iter().map(|id| (*id).to_owned()));
        if ids.is_empty() {
            return Err(Refusal::bad("MissingParameter", "The request must contain the parameter InstanceId"));
        }
        if ids.len() > 1_000 {
            return Err(Refusal::value("too many instances"));
        }
        self.known_machines(asked, &ids, now)?;
        let ids: BTreeSet<String> = ids.into_iter().map(ToOwned::to_owned).collect();
        let named: Vec<&Machine> = ids.iter().filter_map(|id| self.machines.get(id)).collect();
        let is_foreign = |cluster| named.iter().any(|machine| machine.tags.get("stoker.dev/cluster") != Some(cluster));
        if self.require_tags.as_ref().is_some_and(is_foreign) {
            return Err(crate::launch::unauthorized());
        }
        if asked.is_true("DryRun") {
            return Err(crate::launch::would_succeed());
        }
        // One protected machine spares its whole zone; those of other zones are ended, and the call is refused all the same.
        let protected: Vec<&Machine> =
            named.iter().copied().filter(|machine| machine.protected && machine.is_alive(now)).collect();
        let spared: BTreeSet<String> = protected.iter().map(|machine| machine.zone.clone()).collect();
        let refusal = protected.first().map(|machine| {
            let message = "may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.";
            Refusal::bad("OperationNotPermitted", format!("The instance '{}' {message}", machine.id))
        });
        let over = now + self.shutting_down;
        let mut changes = Vec::new();
        for id in ids {
            let Some(machine) = self.machines.get_mut(&id).filter(|machine| !spared.contains(&machine.zone)) else { continue };
            let before = machine.state(now).unwrap_or(State::Terminated);
            if machine.is_alive(now) {
                machine.end(now, over, "Client.UserInitiatedShutdown", "User initiated shutdown");
            }
            changes.push((id, before, machine.state(now).unwrap_or(State::Terminated)));
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        Ok(Xml::of(|xml| {
            xml.items("instancesSet", changes, |xml, (id, before, after)| {
                xml.text("instanceId", id);
                for (name, state) in [("currentState", after), ("previousState", before)] {
                    xml.node(name, |xml| {
                        xml.text("code", state.parts().0);
                        xml.text("name", state.parts().1);
                    });
                }
            });
        }))
    }
}

/// The id of the launch that made a machine; each has its own.
pub(crate) fn reservation_id(machine: &Machine) -> String {
    machine.id.replacen('i', "r", 1)
}

fn values(machine: &Machine, state: State, filter: &str) -> Values {
    let some = |value: Option<&str>| Some(value.map(ToOwned::to_owned).into_iter().collect());
    match filter {
        "availability-zone" => one(&machine.zone),
        "availability-zone-id" => one(&machine.zone_id),
        "capacity-reservation-id" => some(machine.reservation.as_deref()),
        "client-token" => one(&machine.token),
        "image-id" => one(&machine.image),
        "instance-id" => one(&machine.id),
        "instance-lifecycle" => some(machine.market.lifecycle()),
        "instance-state-name" => one(state.parts().1),
        "instance-type" => one(&machine.instance_type),
        "owner-id" => one(&machine.account),
        "private-dns-name" => one(&machine.private_dns),
        "reservation-id" => one(&reservation_id(machine)),
        "spot-instance-request-id" => some(machine.spot_request.as_deref()),
        "network-interface.subnet-id" | "subnet-id" => one(&machine.subnet),
        "vpc-id" => one(&machine.vpc),
        filter => tag_values(&machine.tags, filter),
    }
}
