//! What is bought against every way to buy: random policies over offers that share quotas, budgets, shares and commitments, and what
//! `Usage` counts of each way, compared with the limits as the policy says them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::oracle::Dice;
use super::world::{GROUP_A, World, start};
use crate::base::engine_clock::{Times, Wall};
use crate::base::ids::{Cloud, GpuModel, InstanceType, PoolName, Region, SupplierName, ZoneId};
use crate::base::units::{MiB, Milli, UsdPerHour};
use crate::catalogue::Catalogue;
use crate::catalogue::group::Group;
use crate::choose::allocate::Proof;
use crate::choose::candidate::OfferVerdict;
use crate::choose::what_if::what_if;
use crate::facts::supply::MarketFacts;
use crate::limits::usage::Usage;
use crate::market::offer::{Arch, CapacityType, InstanceSpec, Market, Offer, Place};
use crate::market::price::{Entry, PriceBook, Quote, QuoteKind};
use crate::policy::{Policy, RawPolicy};
use crate::state::memory::Memory;

/// Type, zone, model, GPUs, vCPUs.
const SOLD: [(&str, &str, &str, u32, u32); 5] = [
    ("g.small", "za", "L4", 1, 4),
    ("g.small", "zb", "L4", 1, 4),
    ("g.large", "za", "L4", 4, 24),
    ("p.large", "za", "A100", 8, 96),
    ("p.larger", "zb", "H100", 8, 192),
];

/// Reserved instances are of this type, and capacity is kept of that.
const DISCOUNTED: &str = "g.small";
const KEPT: &str = "g.large";

fn place(zone: &str, instance_type: &str) -> Place {
    Place {
        cloud: Cloud::new("aws").unwrap(),
        region: Region::new("r").unwrap(),
        zone: ZoneId::new(zone).unwrap(),
        instance_type: InstanceType::new(instance_type).unwrap(),
    }
}

/// Everything on demand and on spot, which nobody takes back, at prices in whole cents.
fn book(dice: &mut Dice) -> PriceBook {
    let mut book = PriceBook::new();
    for (instance_type, zone, model, gpus, vcpus) in SOLD {
        let place = place(zone, instance_type);
        book.insert_spec(InstanceSpec {
            cloud: place.cloud.clone(),
            instance_type: place.instance_type.clone(),
            gpu_model: GpuModel::new(model).unwrap(),
            gpus: Milli(1000 * gpus),
            gpu_memory: MiB::from_gib(24),
            vcpus: Some(vcpus),
            memory: Some(MiB::from_gib(64)),
            arch: Arch::Amd64,
            network: None,
            local_disk: None,
        });
        let cents = i64::from(gpus) * i64::try_from(100 + dice.roll(100)).unwrap();
        for (capacity_type, micros) in [(CapacityType::OnDemand, cents * 10_000), (CapacityType::Spot, cents * 4_000)] {
            let quote = Quote { price: UsdPerHour(micros), kind: QuoteKind::List, as_of: Some(start()), source: "test".into() };
            book.insert(Market { place: place.clone(), capacity_type }, Entry::Price(quote));
        }
        book.insert_reclaims(place, Milli(0));
    }
    book
}

struct Drawn {
    policy: Policy,
    reserved_instances: u32,
    kept: u32,
}

/// Limits that bind now and then.
fn draw(dice: &mut Dice) -> Drawn {
    let mut n = |from: u64, sides: u64| from + dice.roll(sides);
    let quota = |name: &str, models: Value, capacity: &str, vcpus: u64| json!({"name": name, "cloud": "aws", "region": "r", "models": models, "capacityTypes": [capacity], "vcpus": vcpus});
    let quotas = [
        quota("small", json!(["L4"]), "on-demand", n(0, 80)),
        quota("large", json!(["A100", "H100"]), "on-demand", n(0, 500)),
        quota("spot", json!([]), "spot", n(0, 400)),
    ];
    let prefer = match n(0, 3) {
        0 => json!(["reserved", "on-demand", "spot"]),
        1 => json!(["spot", "reserved", "on-demand"]),
        _ => json!(["reserved", "spot", "on-demand"]),
    };
    let mut limits = json!({"maxNodes": n(0, 8)});
    if n(0, 3) > 0 {
        limits["maxUsdPerHour"] = json!(n(1, 40));
    }
    let mut capacity = json!({"prefer": prefer});
    if n(0, 2) > 0 {
        capacity["spot"] = json!({"maxShare": format!("{}%", n(0, 101)), "maxMarketShare": format!("{}%", n(1, 100))});
    }
    // The budget of all pools, of which this is the only one, is no lower than the pool's own.
    let mut overall = json!({});
    if n(0, 3) == 0 {
        let own = limits.get("maxUsdPerHour").and_then(Value::as_u64).unwrap_or(1);
        overall["maxUsdPerHour"] = json!(n(own, 10));
    }
    let mut places = json!({"clouds": ["aws"], "regions": ["r"]});
    if n(0, 3) == 0 {
        places["maxZoneShare"] = json!(format!("{}%", n(30, 70)));
    }
    let mut gpu = json!({"models": ["L4", "A100", "H100"]});
    if n(0, 3) == 0 {
        gpu["maxShare"] = json!({"L4": format!("{}%", n(10, 80)), "H100": format!("{}%", n(10, 80))});
    }
    let (reserved_instances, kept) = (u32::try_from(n(0, 3)).unwrap(), u32::try_from(n(0, 3)).unwrap());
    let mut commitments = Vec::new();
    if reserved_instances > 0 {
        commitments.push(json!({"name": "ri", "cloud": "aws", "kind": "reserved-instance", "region": "r", "instanceType": DISCOUNTED, "nodes": reserved_instances, "usdPerHour": 1}));
    }
    if kept > 0 {
        commitments.push(json!({"name": "kept", "cloud": "aws", "kind": "capacity-reservation", "region": "r", "zone": "za", "instanceType": KEPT, "nodes": kept}));
    }
    let raw: RawPolicy = serde_json::from_value(json!({
        "apiVersion": "stoker.dev/v1alpha1", "kind": "Policy", "clusterName": "test",
        "defaults": {"unknownQuota": "allow"},
        "pools": [{
            "name": "pool", "workload": "training",
            "gpu": gpu,
            "where": places, "capacity": capacity, "limits": limits,
        }],
        "limits": overall,
        "quotas": quotas, "commitments": commitments,
    }))
    .unwrap();
    Drawn { policy: Policy::try_from_raw(&raw).unwrap(), reserved_instances, kept }
}

/// Nodes, nodes of each class of preference (what is paid for first), and what the paying ones cost per GPU, turned round.
type Worth = (u32, Vec<u32>, i64);

/// Every way to buy, one node after the other, and the best of those that keep every limit.
struct Ways<'a> {
    drawn: &'a Drawn,
    catalogue: &'a Catalogue,
    offers: Vec<(&'a Group, &'a Offer)>,
    best: Worth,
}

impl Ways<'_> {
    fn price((_, offer): (&Group, &Offer)) -> UsdPerHour {
        offer.quote(Wall(start())).unwrap().price
    }

    fn worth(&self, nodes: &[u32]) -> Worth {
        let pool = &self.drawn.policy.pools[0];
        let mut worth = (nodes.iter().sum(), vec![0; 6], 0);
        let mut covered = self.drawn.reserved_instances;
        for (&(group, offer), &n) in self.offers.iter().zip(nodes) {
            let preference = pool.prefer.iter().position(|c| *c == offer.market.capacity_type).unwrap();
            let free = match offer.market.capacity_type {
                CapacityType::Reserved => n,
                CapacityType::OnDemand if group.place.instance_type.as_str() == DISCOUNTED => n.min(covered),
                CapacityType::OnDemand | CapacityType::Spot => 0,
            };
            if offer.market.capacity_type == CapacityType::OnDemand {
                covered -= free;
            }
            worth.1[preference] += free;
            worth.1[3 + preference] += n - free;
            let useful = match offer.market.capacity_type {
                // Three in a hundred go into checkpoints where spot is used.
                CapacityType::Spot => (Self::price((group, offer)).0 * 100 + 96) / 97,
                CapacityType::Reserved | CapacityType::OnDemand => Self::price((group, offer)).0,
            };
            worth.2 -= useful * i64::from(n - free);
        }
        worth
    }

    fn within(&self, usage: &Usage, nodes: &[u32]) -> bool {
        let policy = &self.drawn.policy;
        let pool = &policy.pools[0];
        let kept = self.offers.iter().zip(nodes).filter(|((_, offer), _)| offer.market.capacity_type == CapacityType::Reserved);
        let share = usage.spot.get(&pool.name).cloned().unwrap_or_default();
        let of = |nodes: u32, slack: u32, part: u32, most: u8| part == 0 || 100 * part <= u32::from(most) * nodes + slack;
        let shares = pool.spot.as_ref().is_none_or(|rules| {
            of(share.bought, 0, share.spot, rules.max_share.0)
                && share.markets.values().all(|here| of(share.bought, 99, *here, rules.max_market_share.0))
        });
        // Counted from the nodes, zone by zone.
        let bought: u32 = nodes.iter().sum();
        let spread = pool.max_zone_share.is_none_or(|most| {
            ["za", "zb"].into_iter().all(|zone| {
                let there = self.offers.iter().zip(nodes).filter(|((group, _), _)| group.place.zone.as_str() == zone);
                of(bought, 99, there.map(|(_, n)| *n).sum(), most.0)
            })
        });
        let models = pool.max_model_share.iter().all(|(model, most)| {
            let with = self.offers.iter().zip(nodes).filter(|((group, _), _)| group.spec.gpu_model == *model);
            of(bought, 99, with.map(|(_, n)| *n).sum(), most.0)
        });
        usage.nodes.get(&pool.name).copied().unwrap_or(0) <= pool.limits.max_nodes
            && policy.max_usd_per_hour.is_none_or(|limit| usage.total_cash() <= limit)
            && spread
            && models
            && pool.limits.max_usd_per_hour.is_none_or(|limit| usage.cash(&pool.name) <= limit)
            && policy.quotas.iter().zip(&usage.quotas).all(|(quota, held)| held.units <= u64::from(quota.limit))
            && kept.map(|(_, n)| *n).sum::<u32>() <= self.drawn.kept
            && shares
    }

    fn try_all(&mut self, usage: &Usage, left: u32, nodes: &mut Vec<u32>) {
        let Some(&(group, offer)) = self.offers.get(nodes.len()) else {
            if self.worth(nodes) > self.best && self.within(usage, nodes) {
                self.best = self.worth(nodes);
            }
            return;
        };
        let mut usage = usage.clone();
        for n in 0..=left {
            nodes.push(n);
            self.try_all(&usage, left - n, nodes);
            nodes.pop();
            usage.add_bought(group, &offer.market, Self::price((group, offer)), 1, self.catalogue);
        }
    }
}

/// The best way to buy up to so many nodes of these groups.
fn ways<'a>(drawn: &'a Drawn, catalogue: &'a Catalogue, groups: impl Iterator<Item = &'a Arc<Group>>, wanted: u32) -> Ways<'a> {
    let offers = groups.flat_map(|group| group.offers.iter().map(move |offer| (group.as_ref(), offer)));
    let offers = offers.filter(|(_, offer)| offer.quote(Wall(start())).is_ok()).collect();
    let mut ways = Ways { drawn, catalogue, offers, best: (0, vec![0; 6], 0) };
    ways.try_all(&Usage::count(&Memory::default(), catalogue, Wall(start())), wanted, &mut Vec::new());
    ways
}

/// On-demand at $0.80 is preferred, but with $1.60 only two of four nodes could be had of it, and of spot at $0.30 all four: not even one of
/// four can be on demand, as $0.80 and three times $0.30 are $1.70.
#[test]
fn a_loser_is_told_the_limit_that_the_chosen_used_up() {
    let mut world = World::new();
    world.policy(|policy| {
        policy.pools[0].prefer.reverse();
        policy.pools[0].limits.max_usd_per_hour = Some(UsdPerHour(1_600_000));
    });
    world.pass();
    world.increase(GROUP_A, 4);
    let plan = world.pass();
    let told: Vec<String> = plan.explanations[0].candidates.iter().map(|c| c.verdict.to_string()).collect();
    assert_eq!(told, ["limits.maxUsdPerHour: $1.2000/h of $1.6000/h spent, one more costs $0.8000/h", "CHOSEN × 4"]);
    assert_eq!(plan.explanations[0].proof, Proof::Best);
}

#[test]
fn no_other_way_to_buy_from_a_pool_is_better() {
    let (mut short, mut nodes_bought) = (0, 0);
    for seed in 1..=600_u64 {
        let mut dice = Dice::new(seed);
        let book = book(&mut dice);
        let drawn = draw(&mut dice);
        let facts = MarketFacts { clouds: [Cloud::new("aws").unwrap()].into(), ..MarketFacts::default() };
        let suppliers = BTreeMap::from([(SupplierName::new("test").unwrap(), facts)]);
        let catalogue = Catalogue::derive(&Arc::new(drawn.policy.clone()), &book, &suppliers);
        let wanted = 1 + u32::try_from(dice.roll(3)).unwrap();
        let ways = ways(&drawn, &catalogue, catalogue.groups.values(), wanted);
        let told = what_if(&catalogue, &Memory::default(), &PoolName::new("pool").unwrap(), None, wanted, Times::at(start()));
        let of = |(group, offer): &(&Group, &Offer)| {
            let told = told.candidates.iter().find(|c| c.group == group.id && c.market == offer.market).unwrap();
            if let OfferVerdict::Chosen { nodes } = told.verdict { nodes } else { 0 }
        };
        let nodes: Vec<u32> = ways.offers.iter().map(of).collect();
        assert_eq!(told.proof, Proof::Best, "seed {seed}");
        assert_eq!(told.found, nodes.iter().sum::<u32>());
        assert_eq!(ways.worth(&nodes), ways.best, "seed {seed}: {wanted} of {:?} gave {nodes:?}", drawn.policy);
        short += u32::from(told.found < wanted);
        nodes_bought += told.found;
    }
    assert!((60..400).contains(&short), "limits bind in some and not in others: {short}");
    assert!(nodes_bought > 600, "{nodes_bought}");
}

#[test]
fn no_other_way_to_supply_an_order_is_better() {
    let (mut orders, mut mixed) = (0, 0);
    for seed in 1..=1_500_u64 {
        let mut dice = Dice::new(seed);
        let book = book(&mut dice);
        let drawn = draw(&mut dice);
        let mut world = World::over(drawn.policy.clone(), book);
        let (instance_type, zone, ..) = SOLD[usize::try_from(dice.roll(5)).unwrap()];
        let group =
            world.catalogue.groups.values().find(|g| g.place == place(zone, instance_type)).map(|g| g.id.to_string()).unwrap();
        let wanted = 1 + u32::try_from(dice.roll(6)).unwrap();
        if world.try_increase(&group, i32::try_from(wanted).unwrap()).is_err() {
            continue;
        }
        orders += 1;
        world.pass();
        let catalogue = world.catalogue.clone();
        let ways = ways(&drawn, &catalogue, catalogue.groups.values().filter(|g| g.id.as_str() == group), wanted);
        let count = |market: &Market| u32::try_from(world.bought().filter(|(_, m)| *m == market).count()).unwrap();
        let nodes: Vec<u32> = ways.offers.iter().map(|(_, offer)| count(&offer.market)).collect();
        assert_eq!(ways.worth(&nodes), ways.best, "seed {seed}: {wanted} of {group} gave {nodes:?} by {:?}", drawn.policy);
        mixed += u32::from(nodes.iter().filter(|n| **n > 0).count() > 1);
    }
    assert!(orders > 300 && mixed > 50, "{orders} {mixed}");
}
