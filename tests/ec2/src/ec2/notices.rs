//! What is told of machines that run: Spot requests, health and console output.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;

use super::network::all_known;
use super::{Answer, is_like, one, page, tag_values};
use crate::machine::{Machine, SpotRequest, State};
use crate::reply::Refusal;
use crate::request::Asked;
use crate::world::World;
use crate::xml::Xml;

/// Filters of `DescribeInstanceStatus`, and those of `DescribeSpotInstanceRequests` but for tags.
const STATUS_FILTERS: [&str; 5] =
    ["instance-status.status", "system-status.status", "event.code", "availability-zone", "instance-state-name"];
const REQUEST_FILTERS: [&str; 5] = ["status-code", "state", "instance-id", "spot-instance-request-id", "type"];

fn known_filters(asked: &Asked, known: &[&str], has_tags: bool) -> Result<(), Refusal> {
    let is_tag = |name: &str| has_tags && (name == "tag-key" || name.starts_with("tag:"));
    match asked.filters().into_iter().find(|(name, _)| !is_tag(name) && !known.contains(&name.as_str())) {
        Some((name, _)) => Err(Refusal::value(format!("The filter '{name}' is invalid"))),
        None => Ok(()),
    }
}

/// Whether an item whose values for each filter are these passes all filters.
fn passes(asked: &Asked, values: impl Fn(&str) -> Vec<String>) -> bool {
    asked
        .filters()
        .iter()
        .all(|(name, wanted)| values(name).iter().any(|value| wanted.iter().any(|wanted| is_like(value, wanted))))
}

impl World {
    pub(super) fn describe_spot_requests(&self, asked: &Asked, now: Timestamp) -> Answer {
        known_filters(asked, &REQUEST_FILTERS, true)?;
        let ids = asked.list("SpotInstanceRequestId");
        let here = self.spot_requests.values().filter_map(|request| {
            let machine = self.machines.get(&request.machine)?;
            let is_here = machine.account == asked.account && machine.region == asked.region;
            // A request is listed for as long as its machine.
            (is_here && machine.state(now).is_some()).then_some((request, machine))
        });
        let here: Vec<(&SpotRequest, &Machine)> = here.collect();
        let is_known = |id: &str| here.iter().any(|(request, _)| request.id == id);
        all_known(&ids, is_known, "InvalidSpotInstanceRequestID.NotFound", "spot instance request")?;
        let wanted = here.into_iter().filter(|(request, _)| ids.is_empty() || ids.contains(&request.id.as_str()));
        let found = wanted.filter(|(request, machine)| {
            let (state, code, _) = request.status(machine, now);
            let values = |name: &str| match name {
                "status-code" => one(code),
                "state" => one(state),
                "instance-id" => one(&machine.id),
                "spot-instance-request-id" => one(&request.id),
                "type" => one("one-time"),
                name => tag_values(&request.tags, name),
            };
            passes(asked, |name| values(name).unwrap_or_default())
        });
        let page = page(self, asked, found.collect(), |(request, _)| request.id.clone())?;
        Ok(page.write("spotInstanceRequestSet", |xml, (request, machine)| {
            let (state, code, at) = request.status(machine, now);
            xml.text("spotInstanceRequestId", &request.id);
            xml.text("type", "one-time");
            xml.text("state", state);
            xml.node("status", |xml| {
                xml.text("code", code);
                xml.time("updateTime", at);
                xml.text("message", code);
            });
            xml.text("instanceId", &machine.id);
            xml.time("createTime", machine.launched);
            xml.text("productDescription", "Linux/UNIX");
            xml.text("launchedAvailabilityZone", &machine.zone);
            xml.text("instanceInterruptionBehavior", "terminate");
            xml.tags(&request.tags);
        }))
    }

    pub(super) fn describe_status(&self, asked: &Asked, now: Timestamp) -> Answer {
        known_filters(asked, &STATUS_FILTERS, false)?;
        let ids = asked.list("InstanceId");
        self.known_machines(asked, &ids, now)?;
        let all = asked.is_true("IncludeAllInstances");
        let listed = self.listed(asked, now).filter(|(_, state)| all || *state == State::Running);
        let listed = listed.filter(|(machine, _)| ids.is_empty() || ids.contains(&machine.id.as_str()));
        let check = |since: Option<Timestamp>| if since.is_some_and(|at| at <= now) { "impaired" } else { "ok" };
        let found = listed.filter(|(machine, state)| {
            let health = &machine.health;
            passes(asked, |name| match name {
                "instance-status.status" => vec![check(health.instance_impaired).to_owned()],
                "system-status.status" => vec![check(health.system_impaired).to_owned()],
                "event.code" => health.events.iter().map(|event| event.code.clone()).collect(),
                "availability-zone" => vec![machine.zone.clone()],
                _ => vec![state.parts().1.to_owned()],
            })
        });
        let page = page(self, asked, found.collect(), |(machine, _)| machine.id.clone())?;
        Ok(page.write("instanceStatusSet", |xml, (machine, state)| {
            let checks =
                [("systemStatus", machine.health.system_impaired), ("instanceStatus", machine.health.instance_impaired)];
            xml.text("instanceId", &machine.id);
            xml.text("availabilityZone", &machine.zone);
            xml.node("instanceState", |xml| {
                xml.text("code", state.parts().0);
                xml.text("name", state.parts().1);
            });
            for (name, since) in checks {
                xml.node(name, |xml| {
                    xml.text("status", check(since));
                    xml.items("details", [since], |xml, since| {
                        xml.text("name", "reachability");
                        xml.text("status", if check(since) == "ok" { "passed" } else { "failed" });
                        xml.some("impairedSince", since.map(crate::xml::stamp));
                    });
                });
            }
            xml.items("eventsSet", &machine.health.events, |xml, event| {
                xml.text("instanceEventId", format!("instance-event-{}", &machine.id));
                xml.text("code", &event.code);
                xml.text("description", &event.description);
                xml.time("notBefore", event.not_before);
            });
        }))
    }

    pub(super) fn console_output(&self, asked: &Asked, now: Timestamp) -> Answer {
        let id = asked.get("InstanceId").unwrap_or_default();
        self.known_machines(asked, &[id], now)?;
        let output = self.machines.get(id).map(|machine| BASE64_STANDARD.encode(&machine.console));
        Ok(Xml::of(|xml| {
            xml.text("instanceId", id);
            xml.time("timestamp", now);
            xml.some("output", output);
        }))
    }
}
