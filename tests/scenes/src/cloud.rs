//! The clouds: what is in stock, machines that are made, boot, get notice and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stoker_core::base::ids::{LaunchKey, NodeGroupId, NodeName, ProviderId, RecordId};
use stoker_core::facts::supply::{Instance, InstanceState, KeyParts, LaunchOutcome, LaunchRequest, Refusal, RefusalKind};
use stoker_core::market::offer::{CapacityType, Market};

/// How long a machine takes to end once it is told to.
const ENDS_IN: SignedDuration = SignedDuration::from_secs(20);

/// A machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) made: Arc<Instance>,
    /// When its Node is there, and when it is Ready; the end of time for one that never joins.
    pub(crate) joins_at: Timestamp,
    pub(crate) ready_at: Timestamp,
    /// When the cloud says that it takes the machine, and when it does.
    pub(crate) reclaim: Option<(Timestamp, Timestamp)>,
    /// When it will have ended, once it was told to.
    pub(crate) ends_at: Option<Timestamp>,
}

/// The clouds.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) machines: BTreeMap<ProviderId, Machine>,
    /// Markets that have no stock, or so much of it left.
    stock: BTreeMap<String, u32>,
    made: BTreeMap<LaunchKey, ProviderId>,
    /// What was sold: when, to which group, for which record.
    pub(crate) sold: Vec<(Timestamp, NodeGroupId, RecordId)>,
    /// Keys to which the answer was no: it stays no.
    refused: BTreeSet<LaunchKey>,
    /// When each market last refused, or took a machine back.
    pub(crate) short_at: BTreeMap<String, Timestamp>,
    pub(crate) boot: SignedDuration,
    /// From joining to Ready.
    pub(crate) start: SignedDuration,
    /// How many of the next machines never join.
    pub(crate) duds: u32,
}

impl Cloud {
    pub(crate) const fn new() -> Self {
        Self {
            machines: BTreeMap::new(),
            stock: BTreeMap::new(),
            made: BTreeMap::new(),
            sold: Vec::new(),
            refused: BTreeSet::new(),
            short_at: BTreeMap::new(),
            boot: SignedDuration::from_mins(3),
            start: SignedDuration::from_secs(30),
            duds: 0,
        }
    }

    /// From now on the markets whose name contains `part` sell so many machines more; `None` for as many as are asked.
    pub(crate) fn stock(&mut self, part: &str, left: Option<u32>) {
        match left {
            Some(left) => self.stock.insert(part.to_owned(), left),
            None => self.stock.remove(part),
        };
    }

    /// Whether a market would sell one more.
    pub(crate) fn sells(&self, market: &Market) -> bool {
        let name = market.to_string();
        self.stock.iter().all(|(part, left)| *left > 0 || !name.contains(part))
    }

    /// Makes a machine, once for each key.
    pub(crate) fn launch(&mut self, request: &LaunchRequest, now: Timestamp) -> LaunchOutcome {
        if let Some(id) = self.made.get(&request.key) {
            return match self.machines.get(id) {
                Some(machine) => LaunchOutcome::Launched(machine.made.as_ref().clone()),
                None => LaunchOutcome::Refused(Refusal::of_market(RefusalKind::Config, "this key's machine is gone")),
            };
        }
        if !self.sells(&request.market) || self.refused.contains(&request.key) {
            self.refused.insert(request.key.clone());
            self.short_at.insert(request.market.to_string(), now);
            let message = format!("no stock of {}", request.market);
            return LaunchOutcome::Refused(Refusal::of_market(RefusalKind::OutOfCapacity, message));
        }
        let name = request.market.to_string();
        for (_, left) in self.stock.iter_mut().filter(|(part, _)| name.contains(part.as_str())) {
            *left -= 1;
        }
        let n = self.made.len();
        let provider_id = ProviderId::new(format!("sim:///n{n}")).unwrap();
        let dud = std::mem::take(&mut self.duds);
        self.duds = dud.saturating_sub(1);
        let joins_at = if dud > 0 { Timestamp::MAX } else { now + self.boot };
        let made = Instance {
            key: request.key.clone(),
            provider_id: provider_id.clone(),
            node_name: NodeName::new(format!("n{n}")).unwrap(),
            market: request.market.clone(),
            launched_at: now,
            state: InstanceState::Pending,
        };
        let ready_at = joins_at.saturating_add(self.start).unwrap_or(Timestamp::MAX);
        let machine = Machine { made: Arc::new(made.clone()), joins_at, ready_at, reclaim: None, ends_at: None };
        self.made.insert(request.key.clone(), provider_id.clone());
        let record = request.key.as_str().parse::<KeyParts>().unwrap().record;
        self.sold.push((now, request.group.clone(), record));
        self.machines.insert(provider_id, machine);
        LaunchOutcome::Launched(made)
    }

    /// Tells a machine to end.
    pub(crate) fn end(&mut self, id: &ProviderId, now: Timestamp) {
        if let Some(machine) = self.machines.get_mut(id) {
            machine.ends_at.get_or_insert(now + ENDS_IN);
        }
    }

    /// Lets time pass: the machines that are gone by now.
    pub(crate) fn advance(&mut self, now: Timestamp) -> Vec<Machine> {
        let gone = |m: &Machine| m.ends_at.is_some_and(|at| at <= now) || m.reclaim.is_some_and(|(_, at)| at <= now);
        let ids: Vec<ProviderId> = self.machines.iter().filter(|(_, m)| gone(m)).map(|(id, _)| id.clone()).collect();
        for machine in self.machines.values_mut() {
            let state = match (machine.ends_at, machine.reclaim) {
                (Some(_), _) => InstanceState::Stopping,
                (None, Some((notice, at))) if notice <= now => InstanceState::Reclaiming { at },
                _ if machine.joins_at <= now => InstanceState::Running,
                _ => InstanceState::Pending,
            };
            if machine.made.state != state {
                Arc::make_mut(&mut machine.made).state = state;
            }
        }
        let gone: Vec<Machine> = ids.iter().filter_map(|id| self.machines.remove(id)).collect();
        for machine in gone.iter().filter(|machine| machine.reclaim.is_some() || machine.joins_at == Timestamp::MAX) {
            self.short_at.insert(machine.made.market.to_string(), now);
        }
        gone
    }

    /// The next moment after `now` at which a machine changes by itself.
    pub(crate) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let moments = |m: &Machine| {
            let (notice, gone) = m.reclaim.unzip();
            [Some(m.joins_at), Some(m.ready_at), notice, gone, m.ends_at]
        };
        self.machines.values().flat_map(moments).flatten().filter(|at| *at > now && *at < Timestamp::MAX).min()
    }

    pub(crate) fn of_node(&self, node: &str) -> Option<&Machine> {
        self.machines.values().find(|m| m.made.node_name.as_str() == node)
    }

    pub(crate) fn of_node_mut(&mut self, node: &str) -> Option<&mut Machine> {
        self.machines.values_mut().find(|m| m.made.node_name.as_str() == node)
    }

    /// The spot machines in markets whose name contains `part`, by node.
    pub(crate) fn spot_in(&self, part: &str) -> Vec<String> {
        let spot = |m: &&Machine| m.made.market.capacity_type == CapacityType::Spot;
        let here = self.machines.values().filter(spot).filter(|m| m.made.market.to_string().contains(part));
        here.map(|m| m.made.node_name.to_string()).collect()
    }
}
