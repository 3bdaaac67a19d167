//! Floors: one lacks nodes only where quota, stock, budget or `maxNodes` explain it, or where broken nodes wait for their replacement; and what
//! the provider says of it is true.

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{NodeGroupId, PoolName};
use stoker_core::base::kinds::Evidence;
use stoker_core::market::offer::{CapacityType, Market};
use stoker_core::policy::{Pool, Quota};

use crate::scene::Scene;

/// How long a floor may lack nodes while nothing explains it and nothing is on its way: the time for which the autoscaler leaves a group
/// alone (5 min), and that until we grow it ourselves (2 min).
const FILLS_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// How long after a pod came, or a node was launched, the next may be on its way: what must not last longer than a boot, or a failed one.
const COMES_WITHIN: SignedDuration = SignedDuration::from_mins(5);
const BOOTS_WITHIN: SignedDuration = SignedDuration::from_mins(11);

/// How long after a market refused, or took a machine back, it may be left alone: half an hour at most, and a region's spot for an hour.
const LEFT_ALONE: SignedDuration = SignedDuration::from_mins(65);

/// A floor that lacks nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lack {
    /// For how long nothing has explained it, of the time in which the world let the provider act.
    unexplained: SignedDuration,
    /// When it was last looked at.
    at: Timestamp,
}

impl Scene {
    /// Nodes of a pool that a pod could begin on at once, as they truly are.
    fn truly_warm(&self, pool: &PoolName) -> usize {
        let nodes = self.autoscaler.cluster().all_nodes().filter(|node| node.ready() && !node.unschedulable);
        // One that is known to be broken is closed; of the others nobody knows.
        let nodes = nodes.filter(|node| !self.gone.contains_key(&node.name));
        nodes.filter(|node| self.is_of(&node.name, pool) && !self.has_pods(&node.name)).count()
    }

    fn is_of(&self, node: &str, pool: &PoolName) -> bool {
        self.pool_of_node(node).is_some_and(|(of, ..)| of.name == *pool)
    }

    pub(super) fn has_pods(&self, node: &str) -> bool {
        self.autoscaler.cluster().all_pods().any(|pod| pod.node.as_deref() == Some(node))
    }

    /// Whether no more free nodes of a node's pool are held than its floor wants.
    pub(crate) fn keeps_floor(&self, node: &str) -> bool {
        let Some((pool, ..)) = self.pool_of_node(node) else { return false };
        let floors = self.desk().accounts.floors.iter().filter(|floor| floor.pool == pool.name);
        let wanted: u32 = floors.map(|floor| floor.wanted).sum();
        // Broken ones are kept for another reason, until they may be replaced.
        let fit = |node: &str| self.pods_on(node).is_empty() && self.verdict(node) != "unhealthy";
        let free = self.held.iter().filter(|node| self.is_of(node, &pool.name) && fit(node));
        free.count() <= usize::try_from(wanted).unwrap_or(usize::MAX)
    }

    /// Floors that lack nodes, by what their pools always keep, with what the provider says keeps those from coming.
    pub(crate) fn floors_lack(&self) -> Vec<(PoolName, usize, u32, Option<String>)> {
        let pools = self.desk().catalogue.policy.pools.iter();
        let lacks = pools.filter_map(|pool| {
            let floor = pool.warm_floor.as_ref()?;
            if pool.off_hours.as_ref().is_some_and(|off| off.at(self.desk().wall().0).0) {
                return None;
            }
            let warm = self.truly_warm(&pool.name);
            let stands = self.desk().accounts.floors.iter().find(|floor| floor.pool == pool.name);
            let blocked = stands.and_then(|stands| stands.blocked.clone());
            (u32::try_from(warm).unwrap_or(u32::MAX) < floor.nodes).then(|| (pool.name.clone(), warm, floor.nodes, blocked))
        });
        lacks.collect()
    }

    /// What explains that a floor cannot be filled, as the world truly is; `None` where what the provider says is not so, or explains nothing.
    pub(crate) fn explains(&self, pool: &PoolName, said: &str) -> Option<&'static str> {
        let pool = self.desk().catalogue.policy.pool(pool)?;
        let machines = || self.desk().cloud.machines.values().filter(|machine| machine.ends_at.is_none());
        let of_pool = || machines().filter(|machine| self.pool_of_machine(machine).is_some_and(|(of, _)| of.name == pool.name));
        let counted: u32 = {
            let of_pool = self.desk().limits.iter().filter(|(id, _)| self.group_is_of(id.as_str(), pool));
            of_pool.map(|(_, limits)| limits.target).sum()
        };
        if said.starts_with("limits.maxNodes") {
            return (counted >= pool.limits.max_nodes).then_some("maxNodes");
        }
        if said.starts_with("limits.maxUsdPerHour") {
            let spent: i64 = of_pool().map(|machine| crate::market::price(&machine.made.market)).sum();
            let limit = pool.limits.max_usd_per_hour.map_or(i64::MAX, |limit| limit.0);
            let offers = self.desk().catalogue.pool_groups(&pool.name).flat_map(|group| &group.offers);
            let dearest = offers.map(|offer| crate::market::price(&offer.market)).max().unwrap_or(0);
            // From nine tenths on nothing is bought on demand, until it is two points less.
            return (spent + dearest > limit / 100 * 88).then_some("budget");
        }
        if said.starts_with("quota ") {
            let used = |quota: &Quota| -> u64 {
                let alike = machines().filter(|machine| quota.name == machine.made.market.capacity_type.to_string());
                alike.map(|machine| u64::from(crate::market::vcpus(&machine.made.market))).sum()
            };
            // Four of the smallest machine. Those that were ordered and are not there yet count too.
            let named =
                self.desk().catalogue.policy.quotas.iter().find(|quota| said.starts_with(&format!("quota {} ", quota.name)))?;
            return (used(named) + 8 > named.share()).then_some("quota");
        }
        if said.contains("market returned") || said.contains("being retried") || said.contains("reclaim") {
            return self.is_sold_out(pool).then_some("stock");
        }
        let of_nodes = [" unhealthy, cordoned, or silent", " no longer report, and at most"];
        if of_nodes.iter().any(|words| said.contains(words)) {
            let mut nodes = self.autoscaler.cluster().all_nodes().filter(|node| self.is_of(&node.name, &pool.name));
            let silent =
                |node: &str| pool.evidence == Evidence::Probe && self.probes.get(node).is_none_or(|probe| !probe.online);
            let unfit = nodes
                .any(|node| self.truth.sick.contains(&node.name) || node.unschedulable || !node.ready() || silent(&node.name));
            return unfit.then_some("broken, closed or silent nodes that are not replaced while they stay");
        }
        if said.contains(" Ready and not warm yet: ") {
            let mut nodes =
                self.autoscaler.cluster().all_nodes().filter(|node| node.ready() && self.is_of(&node.name, &pool.name));
            let silent = |node: &str| self.probes.get(node).is_none_or(|probe| !probe.online);
            let late = nodes.any(|node| self.truth.sick.contains(&node.name) || silent(&node.name));
            return late.then_some("nodes that are Ready, and of which nothing is heard, or that are not as they should be");
        }
        if said.contains("Cluster Autoscaler may not know that") {
            let mut boots = machines().filter(|machine| machine.ready_at > self.now);
            return boots.next().map(|_| "nodes that boot already");
        }
        None
    }

    /// Whether every market in which a pool may buy sells nothing, or is left alone for what it did lately.
    fn is_sold_out(&self, pool: &Pool) -> bool {
        let cloud = &self.desk().cloud;
        let lately = |at: &Timestamp| self.is_left_alone_since(*at);
        let short = |market: &Market| cloud.short_at.get(&market.to_string()).is_some_and(lately);
        // Of a region that takes many back all spot is left alone.
        let spot_short = cloud.short_at.iter().any(|(market, at)| market.ends_with("/spot") && lately(at));
        let offers = self.desk().catalogue.pool_groups(&pool.name).flat_map(|group| &group.offers);
        let mut markets = offers.map(|offer| &offer.market);
        markets
            .all(|market| !cloud.sells(market) || short(market) || (market.capacity_type == CapacityType::Spot && spot_short))
    }

    /// Whether what a market did then may still keep it closed.
    fn is_left_alone_since(&self, at: Timestamp) -> bool {
        self.now.duration_since(at) < LEFT_ALONE
    }

    /// Whether quota, budget or `maxNodes` truly keep a pool from growing.
    pub(crate) fn is_full(&self, pool: &str) -> bool {
        let Some(pool) = self.desk().catalogue.policy.pools.iter().find(|known| known.name.as_str() == pool) else {
            return false;
        };
        let mut of_pool = self.desk().limits.iter().filter(|(id, limits)| limits.listed && self.group_is_of(id.as_str(), pool));
        of_pool.all(|(_, limits)| {
            let Some(closed) = &limits.closed else { return false };
            let said = closed.to_string();
            // Of each capacity type there is a part.
            said.split("; ").all(|part| {
                let why = part.split_once(": ").map_or(part, |(_, why)| why);
                self.explains(&pool.name, why).is_some_and(|why| ["quota", "budget", "maxNodes"].contains(&why))
            })
        })
    }

    pub(super) fn group_is_of(&self, group: &str, pool: &Pool) -> bool {
        NodeGroupId::find(&self.desk().catalogue.groups, group).is_some_and(|group| group.pool == pool.name)
    }

    /// Whether nodes of a pool are on their way, or a pod took one a moment ago.
    fn comes(&self, pool: &PoolName) -> bool {
        let within = |at: jiff::Timestamp, length| self.now.duration_since(at) < length;
        let machines =
            self.desk().cloud.machines.values().filter(|machine| machine.ends_at.is_none() && machine.ready_at > self.now);
        let mut boots = machines.filter(|machine| self.pool_of_machine(machine).is_some_and(|(of, _)| of.name == *pool));
        let came = self.truth.came.get(pool.as_str()).and_then(|came| came.last());
        came.is_some_and(|at| within(*at, COMES_WITHIN)) || boots.any(|machine| within(machine.made.launched_at, BOOTS_WITHIN))
    }

    /// Whether a pool's floor is asked for through buffers, and the autoscaler, which alone buys for those, leaves every group of it alone: for
    /// up to half an hour where a group failed again and again.
    fn waits_for_autoscaler(&self, pool: &PoolName) -> bool {
        let served = Some(self.desk().buffers);
        let floor = self.desk().catalogue.policy.pool(pool).and_then(|pool| pool.warm_floor.as_ref());
        let alone = |group: &NodeGroupId| self.truth.left_alone.get(group.as_str()).is_some_and(|until| *until > self.now);
        floor.is_some_and(|floor| floor.is_kept_by_buffers(served))
            && self.desk().catalogue.pool_groups(pool).all(|group| alone(&group.id))
    }

    /// A floor lacks nodes only where the world explains it, and the provider says so.
    pub(super) fn floors_fill(&mut self) {
        let now = self.now;
        let faults = &self.desk().faults;
        let silent = self.probes.values().any(|probe| !probe.online);
        // Without these nothing can be bought, or nobody can tell what there is.
        let disturbed = faults.stale || faults.unclear || faults.unheard || !self.desk().works() || !self.scans || silent;
        let lack = self.floors_lack();
        self.truth.lacking.retain(|pool, _| lack.iter().any(|(other, ..)| other == pool));
        for (pool, warm, wanted, said) in lack {
            let why = said.as_deref().and_then(|said| self.explains(&pool, said));
            let known = self.truth.lacking.get(&pool).copied();
            let passed = known.map_or(SignedDuration::ZERO, |known| now.duration_since(known.at));
            let before = known.map_or(SignedDuration::ZERO, |known| known.unexplained);
            let unexplained = match why {
                Some(_) => SignedDuration::ZERO,
                None if disturbed || self.comes(&pool) || self.waits_for_autoscaler(&pool) => before,
                None => before + passed,
            };
            self.truth.lacking.insert(pool.clone(), Lack { unexplained, at: now });
            if unexplained > FILLS_WITHIN {
                let minutes = FILLS_WITHIN.as_mins();
                let said = said.map_or_else(|| "nothing says why".to_owned(), |said| format!("this explains nothing: {said}"));
                self.truth.lacking.remove(&pool);
                self.truth
                    .breaks(now, &format!("the floor of {pool} has {warm} of {wanted} nodes for {minutes} min, and {said}"));
            }
        }
    }
}
