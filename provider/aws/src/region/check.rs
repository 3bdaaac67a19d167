//! Whether a region's account is as `aws.yaml` says, and whether Stoker may do there what it does. Nothing is made or ended.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use stoker_core::base::ids::{InstanceType, NodeClassName, ZoneId};
use stoker_core::market::offer::Arch;
use stoker_core::market::price::PriceBook;

use super::RegionSupplier;
use super::lookup::LookedUp;
use super::trials::Sold;
use crate::answers::QueueUrl;
use crate::check::{Finding, OfPolicy};
use crate::config::Config;
use crate::wire::{Failure, Service};

impl RegionSupplier {
    /// What works here, and what does not. What IAM does not allow is named by its action, wherever it was asked.
    ///
    /// # Errors
    /// Why there are no credentials that count here; in words.
    pub(crate) async fn check(
        &self,
        config: &Config,
        book: &PriceBook,
        of_policy: Option<&OfPolicy>,
    ) -> Result<Vec<Finding>, String> {
        let mut found = self.look_at_all(config, book, of_policy).await?;
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
        book: &PriceBook,
        of_policy: Option<&OfPolicy>,
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
        let types = match self.offerings().await {
            Ok(offered) => {
                let (row, types) = self.sold_here(offered, looked.as_deref());
                found.push(self.finding("types sold here", row));
                types
            }
            Err(failure) => {
                found.push(self.fails("types sold here", &failure));
                BTreeSet::new()
            }
        };
        let prices = self.spot_prices().await;
        if let Some(looked) = looked.as_deref() {
            let none = BTreeMap::new();
            let sold = Sold { book, looked, types: &types, prices: prices.as_ref().unwrap_or(&none) };
            let (trials, nothing) = match of_policy {
                Some(of_policy) => self.trials_of_policy(config, &sold, of_policy),
                None => self.trials_of_classes(config, &sold),
            };
            let needed: BTreeSet<_> = trials.iter().filter_map(|trial| trial.image(config)).collect();
            self.check_images(config, looked, &needed, &mut found);
            found.extend(nothing);
            found.extend(self.try_out(config, looked, trials).await);
        } else {
            let why = "not tried without subnets, security groups and cluster: correct those, and check again";
            found.push(self.finding("launches, paid beforehand", Err(why.to_owned())));
        }
        found.push(self.asked("spot prices", prices.map(|prices| format!("{} in effect", prices.len()))));
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
            self.counted("subnets", subnets.map(|found| found.len()), |count| self.some_subnets(count)),
            self.counted("security groups", groups.map(|found| found.len()), |count| self.some_groups(count)),
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
        if let Err(none) = self.some_subnets(looked.subnets.len()) {
            found.push(self.finding("subnets", Err(none)));
        }
        let groups = self.some_groups(looked.groups.len()).map(|()| looked.groups.join(", "));
        found.push(self.finding("security groups", groups));
        found.push(self.works("cluster", format!("Kubernetes {} at {}", looked.cluster.version, looked.cluster.endpoint)));
        found.extend(looked.faults.iter().map(|fault| self.finding("aws.yaml", Err(fault.clone()))));
    }

    /// Shows the image of each class and architecture. There must be those that are `needed`, and one of each class.
    fn check_images(
        &self,
        config: &Config,
        looked: &LookedUp,
        needed: &BTreeSet<(&NodeClassName, Arch)>,
        found: &mut Vec<Finding>,
    ) {
        for name in config.classes.keys() {
            for arch in [Arch::Amd64, Arch::Arm64] {
                let image = looked.image(name, arch);
                let is_missed = needed.contains(&(name, arch)) || arch == Arch::Amd64 && looked.is_imageless(name);
                if image.is_ok() || is_missed {
                    let image = image.map(ToOwned::to_owned).map_err(|none| none.why);
                    found.push(self.finding(&format!("image of {name}, {}", arch.as_str()), image));
                }
            }
        }
    }

    /// The types that are sold in zones with a subnet, and what to say of them. Where no subnets are known all zones count.
    fn sold_here(
        &self,
        offered: BTreeSet<(InstanceType, ZoneId)>,
        looked: Option<&LookedUp>,
    ) -> (Result<String, String>, BTreeSet<(InstanceType, ZoneId)>) {
        let elsewhere: BTreeSet<&str> = offered.iter().map(|(_, zone)| zone.as_str()).collect();
        let elsewhere = elsewhere.into_iter().collect::<Vec<_>>().join(", ");
        let has_subnet = |zone: &ZoneId| looked.is_none_or(|looked| looked.subnets.contains_key(zone));
        let here: BTreeSet<_> = offered.into_iter().filter(|(_, zone)| has_subnet(zone)).collect();
        let row = if !here.is_empty() {
            let whose = if looked.is_some() { "zones with a subnet" } else { "all zones" };
            Ok(format!("{} in {whose}", here.len()))
        } else if !elsewhere.is_empty() {
            Err(format!("none in a zone with a subnet: add a subnet in {elsewhere} to subnets in aws.yaml"))
        } else if self.types.is_empty() {
            Err("the price tables have no GPU type of this region: take it out of regions, or give tables with --prices-dir"
                .to_owned())
        } else {
            Err("EC2 sells none of the GPU types that the price tables have here: take the region out of regions".to_owned())
        };
        (row, here)
    }

    fn counted(&self, what: &str, answer: Result<usize, Failure>, some: impl Fn(usize) -> Result<(), String>) -> Finding {
        match answer {
            Ok(count) => self.finding(what, some(count).map(|()| format!("{count} found"))),
            Err(failure) => self.fails(what, &failure),
        }
    }

    pub(super) fn works(&self, what: &str, told: String) -> Finding {
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
