//! Whether a region's account is as `aws.yaml` says, and whether Stoker may do there what it does. Nothing is made or ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use stoker_core::base::ids::{InstanceType, LaunchKey, NodeGroupId, ZoneId, ZoneName};
use stoker_core::facts::supply::LaunchRequest;
use stoker_core::market::offer::{CapacityType, InstanceSpec, Market, Place};
use stoker_service::suppliers::Launch;
use tokio::time::sleep;

use super::RegionSupplier;
use super::launching::AGAIN_AFTER;
use super::lookup::LookedUp;
use crate::answers::{Done, QueueUrl};
use crate::check::Finding;
use crate::config::Config;
use crate::launch::{Ordered, token};
use crate::user_data::user_data;
use crate::wire::{Class, Failure, Form, Service};

/// The error that says that a launch would be allowed.
const WOULD_WORK: &str = "DryRunOperation";

impl RegionSupplier {
    /// What works here, and what does not. What IAM does not allow is named by its action, wherever it was asked.
    ///
    /// # Errors
    /// Why there are no credentials that count here; in words.
    pub(crate) async fn check(
        &self,
        config: &Config,
        specs: &BTreeMap<InstanceType, Arc<InstanceSpec>>,
    ) -> Result<Vec<Finding>, String> {
        let mut found = self.look_at_all(config, specs).await?;
        for action in self.api.denied() {
            let names_it = |one: &Finding| one.told.as_ref().is_err_and(|why| why.contains(&format!("{action}:")));
            if !found.iter().any(names_it) {
                let why = format!("{action}: IAM does not allow it");
                found.push(self.finding(&format!("right to {action}"), Err(why)));
            }
            for one in found.iter_mut().filter(|one| names_it(one)) {
                one.denied = Some(action.clone());
            }
        }
        Ok(found)
    }

    async fn look_at_all(
        &self,
        config: &Config,
        specs: &BTreeMap<InstanceType, Arc<InstanceSpec>>,
    ) -> Result<Vec<Finding>, String> {
        let mut found = Vec::new();
        match self.account().await {
            Ok(account) => found.push(self.works("credentials", format!("account {account}"))),
            Err(failure @ Failure::NoCredentials(_)) => return Err(failure.to_string()),
            // Nothing else could be asked.
            Err(failure) => return Ok(vec![self.fails("credentials", &failure)]),
        }
        found.push(self.finding("clock", self.api.clock_fault().map_or_else(|| Ok("like AWS's".to_owned()), Err)));
        let looked = self.looked_up(config).await;
        match &looked {
            Ok(looked) => self.check_places(looked, &mut found),
            Err(why) => self.check_each_place(config, why, &mut found).await,
        }
        let looked = looked.ok();
        let offered = self.offerings().await;
        let types = match &offered {
            Ok(offered) => {
                let is_ours = |zone| looked.as_ref().is_none_or(|looked| looked.subnets.contains_key(zone));
                let ours: Vec<_> = offered.iter().filter(|(_, zone)| is_ours(zone)).cloned().collect();
                let whose = if looked.is_some() { "zones with a subnet" } else { "all zones" };
                found.push(self.works("types sold here", format!("{} in {whose}", ours.len())));
                ours
            }
            Err(failure) => {
                found.push(self.fails("types sold here", failure));
                Vec::new()
            }
        };
        if let Some(looked) = &looked {
            self.check_launches(config, specs, looked, &types, &mut found).await;
        } else {
            let why = "not tried without subnets, security groups and cluster: correct those, and check again";
            found.push(self.finding("launches, paid beforehand", Err(why.to_owned())));
        }
        let prices = self.spot_prices().await.map(|prices| format!("{} in effect", prices.len()));
        found.push(self.asked("spot prices", prices));
        let one = self.types.iter().take(1).cloned().collect();
        found.push(self.asked("list prices", self.list_prices(one).await.map(|()| "can be asked".to_owned())));
        let machines = self.machine_types().await.map(|types| format!("{} described", types.len()));
        found.push(self.asked("instance types", machines));
        let quotas = self.quotas().await.map(|quotas| {
            let told = quotas.iter().map(|(code, quota)| format!("{code} {}", quota.limit));
            format!("{} vCPU", told.collect::<Vec<_>>().join(", "))
        });
        found.push(self.asked("quotas", quotas));
        let reservations = self.reservations().await.map(|(_, all)| format!("{} active or scheduled", all.len()));
        found.push(self.asked("reservations", reservations));
        let machines = self.list(self.api.now()).await.map(|listing| format!("{} of this cluster", listing.instances.len()));
        found.push(self.finding("machines", machines));
        found.push(self.asked("states of machines", self.health().await.map(|_| "known".to_owned())));
        if looked.is_some() {
            let paid =
                self.commitments(config).await.map(|(all, _)| format!("{} to propose by stoker commit --from-aws", all.len()));
            found.push(self.finding("paid beforehand", paid));
        }
        found.push(match &self.config.queue {
            Some(name) => {
                let asked = json!({ "QueueName": name });
                let queue = self.api.ask_json::<QueueUrl>(Service::Sqs, "GetQueueUrl", &asked).await;
                self.asked("notices", queue.map(|queue| format!("queue {}", queue.url)))
            }
            None => self.works("notices", "no queue: the Spot requests are asked every ten seconds".to_owned()),
        });
        Ok(found)
    }

    /// Looks at subnets, groups and cluster one by one, where looking them all up failed, and why.
    async fn check_each_place(&self, config: &Config, why: &str, found: &mut Vec<Finding>) {
        let (subnets, groups, cluster) = futures::join!(self.subnets(), self.groups(), self.cluster(config));
        let rows = [
            self.asked("subnets", subnets.map(|found| format!("{} found", found.len()))),
            self.asked("security groups", groups.map(|found| format!("{} found", found.len()))),
            self.asked("cluster", cluster.map(|found| format!("Kubernetes {} at {}", found.version, found.endpoint))),
        ];
        if rows.iter().all(|row| row.told.is_ok()) {
            found.push(self.finding("subnets, security groups, cluster", Err(why.to_owned())));
        }
        found.extend(rows);
    }

    fn check_places(&self, looked: &LookedUp, found: &mut Vec<Finding>) {
        for (zone, subnets) in &looked.subnets {
            let free: u32 = subnets.iter().filter_map(|subnet| subnet.available_ip_address_count).sum();
            let names = subnets.iter().map(|subnet| subnet.subnet_id.as_str()).collect::<Vec<_>>().join(", ");
            let told = format!("{names}: {free} free addresses");
            let told = if free == 0 { Err(format!("{told}; add a subnet, or free some")) } else { Ok(told) };
            found.push(self.finding(&format!("subnets in {zone}"), told));
        }
        found.push(self.works("security groups", looked.groups.join(", ")));
        found.push(self.works("cluster", format!("Kubernetes {} at {}", looked.cluster.version, looked.cluster.endpoint)));
        found.extend(looked.faults.iter().map(|fault| self.finding("aws.yaml", Err(fault.clone()))));
    }

    /// Asks EC2 whether it would make a machine of each class, on demand and by Spot.
    async fn check_launches(
        &self,
        config: &Config,
        specs: &BTreeMap<InstanceType, Arc<InstanceSpec>>,
        looked: &LookedUp,
        types: &[(InstanceType, ZoneId)],
        found: &mut Vec<Finding>,
    ) {
        let sold = types.iter().find_map(|(name, zone)| Some((specs.get(name)?, zone)));
        for (name, class) in &config.classes {
            for bought in [CapacityType::OnDemand, CapacityType::Spot] {
                let what = format!("launch {name}, {bought}");
                let Some((spec, zone)) = sold else {
                    found.push(self.finding(&what, Err("no GPU type is sold in a zone with a subnet".to_owned())));
                    continue;
                };
                let launch = match self.trial(spec, zone, looked, bought) {
                    Ok(launch) => launch,
                    Err(why) => {
                        found.push(self.finding(&what, Err(why)));
                        continue;
                    }
                };
                let image = looked.image(name, spec.arch).map_err(|none| none.why);
                let data = user_data(&launch, class, &config.cluster.name, &looked.cluster);
                let form = image.and_then(|image| data.map(|data| (image, data))).and_then(|(image, data)| {
                    let subnet = looked.subnets.get(zone).and_then(|subnets| subnets.first()).ok_or("no subnet")?;
                    let token = token(&looked.account, self.api.region(), &launch.request.key);
                    let ordered = Ordered {
                        launch: &launch,
                        class_name: name,
                        class,
                        cluster: &self.cluster,
                        eks: &looked.eks,
                        token: &token,
                        image,
                        subnet: &subnet.subnet_id,
                        groups: &looked.groups,
                        reservation: None,
                        user_data: &BASE64_STANDARD.encode(data),
                    };
                    Ok(ordered.form()?.with("DryRun", "true"))
                });
                found.push(match form {
                    Err(why) => self.finding(&what, Err(why)),
                    Ok(form) => match self.try_out(&form).await {
                        Err(failure) if failure.code() == Some(WOULD_WORK) => {
                            self.works(&what, format!("allowed, tried with {}", spec.instance_type))
                        }
                        Err(failure) => self.fails(&what, &failure),
                        Ok(_) => self.finding(&what, Err("EC2 did not understand that this is a trial".to_owned())),
                    },
                });
            }
        }
    }

    /// Tries a launch at the pace that EC2 takes, and once more where that is too fast: others may launch too.
    async fn try_out(&self, form: &Form) -> Result<Done, Failure> {
        self.turns.wait(self.pace()).await;
        match self.api.change::<Done>(form).await {
            Err(failure) if failure.class() == Class::Throttled => {
                sleep(AGAIN_AFTER).await;
                self.api.change::<Done>(form).await
            }
            other => other,
        }
    }

    fn trial(
        &self,
        spec: &Arc<InstanceSpec>,
        zone: &ZoneId,
        looked: &LookedUp,
        bought: CapacityType,
    ) -> Result<Launch, String> {
        let name = looked.subnets.get(zone).and_then(|subnets| subnets.first()).map(|subnet| subnet.availability_zone.as_str());
        let in_words = |error: stoker_core::base::ids::IdError| error.to_string();
        let place = Place {
            cloud: spec.cloud.clone(),
            region: self.name.clone(),
            zone: zone.clone(),
            instance_type: spec.instance_type.clone(),
        };
        let request = LaunchRequest {
            key: LaunchKey::new(format!("{}/check/00000000/0/1", self.cluster)).map_err(in_words)?,
            group: NodeGroupId::new("check").map_err(in_words)?,
            market: Market { place, capacity_type: bought },
            zone_name: ZoneName::new(name.unwrap_or_default()).map_err(in_words)?,
            reservation: None,
        };
        Ok(Launch { spec: Some(Arc::clone(spec)), ..request.into() })
    }

    fn works(&self, what: &str, told: String) -> Finding {
        self.finding(what, Ok(told))
    }

    fn asked(&self, what: &str, answer: Result<String, Failure>) -> Finding {
        match answer {
            Ok(told) => self.works(what, told),
            Err(failure) => self.fails(what, &failure),
        }
    }

    pub(crate) fn finding(&self, what: &str, told: Result<String, String>) -> Finding {
        Finding { region: self.name.clone(), what: what.to_owned(), told, denied: None }
    }

    fn fails(&self, what: &str, failure: &Failure) -> Finding {
        self.finding(what, Err(failure.with_cure()))
    }
}
