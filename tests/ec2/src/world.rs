//! The world: all that the cloud holds, as plain data that tests set and read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::Clock;
use crate::bucket::Buckets;
use crate::fault::{Call, Rule};
use crate::launch::Use;
use crate::machine::{Machine, Market, NOTICE, SpotRequest, State};
use crate::region::Region;
use crate::{TypeInfo, default_types};

/// The access key id of the home account in a new world.
pub const ACCESS_KEY: &str = "AKIDSTOKERTEST";

/// The letters of us-east-1's zones and their ids.
const ZONES: [(&str, &str); 3] = [("a", "use1-az1"), ("b", "use1-az2"), ("c", "use1-az4")];

/// All that the cloud holds.
pub struct World {
    pub(crate) clock: Clock,
    /// The home account: whose machines tests are about.
    pub account: String,
    /// The account of each access key id. A key that is not here is refused.
    pub accounts: BTreeMap<String, String>,
    /// Regions by account and name. The home account's other regions refuse every call; those of other accounts are empty.
    pub regions: BTreeMap<(String, String), Region>,
    /// Every machine ever made, by id.
    pub machines: BTreeMap<String, Machine>,
    /// Spot requests by id.
    pub spot_requests: BTreeMap<String, SpotRequest>,
    /// Instance types by name.
    pub types: BTreeMap<String, TypeInfo>,
    /// Savings plans, as the API gives them.
    pub savings_plans: Vec<Value>,
    /// How long a machine launched from now on is pending.
    pub boot: Duration,
    /// How long a machine ended from now on shuts down.
    pub shutting_down: Duration,
    /// For how long after a launch or an end listings show the state before.
    pub listing_lag: Duration,
    /// Whether a pending machine has no private DNS name yet.
    pub names_late: bool,
    /// Items of a page at most, whatever is asked.
    pub page_limit: usize,
    /// Whether calls are throttled as on AWS.
    pub buckets: bool,
    /// The cluster whose tags every launch must bear, as the policy that Stoker asks for demands; `None` lets everybody do everything.
    pub require_tags: Option<String>,
    /// Faults; the first that matches a call wins.
    pub rules: Vec<Rule>,
    /// What chance is drawn from.
    pub seed: u64,
    /// Every call, in order.
    pub calls: Vec<Call>,
    /// Ids that any `TerminateInstances` named, refused ones too.
    pub named_to_end: BTreeSet<String>,
    pub(crate) tokens: BTreeMap<(String, String, String, String), Use>,
    pub(crate) tokens_left: Buckets,
    pub(crate) calls_met: u64,
    /// How many ids were given out.
    made: u64,
}

impl World {
    pub(crate) fn new(account: &str, clock: Clock) -> Self {
        let types = default_types();
        let region = Region::furnished("us-east-1", &ZONES, &types, clock());
        Self {
            clock,
            account: account.to_owned(),
            accounts: [(ACCESS_KEY.to_owned(), account.to_owned())].into(),
            regions: [((account.to_owned(), "us-east-1".to_owned()), region)].into(),
            machines: BTreeMap::new(),
            spot_requests: BTreeMap::new(),
            types,
            savings_plans: Vec::new(),
            boot: Duration::from_secs(5),
            shutting_down: Duration::from_secs(30),
            listing_lag: Duration::ZERO,
            names_late: false,
            page_limit: 1_000,
            buckets: true,
            require_tags: None,
            rules: Vec::new(),
            seed: 0,
            calls_met: 0,
            calls: Vec::new(),
            named_to_end: BTreeSet::new(),
            tokens: BTreeMap::new(),
            tokens_left: Buckets::default(),
            made: 0,
        }
    }

    /// The time of its clock.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A region of the home account; an empty one is made where there is none.
    pub fn region(&mut self, name: &str) -> &mut Region {
        self.regions.entry((self.account.clone(), name.to_owned())).or_default()
    }

    /// Adds a region to the home account, furnished as us-east-1 is. `zones` are letters and ids.
    pub fn add_region(&mut self, name: &str, zones: &[(&str, &str)]) -> &mut Region {
        let region = Region::furnished(name, zones, &self.types, self.now());
        self.regions.entry((self.account.clone(), name.to_owned())).insert_entry(region).into_mut()
    }

    /// How many calls of an action there were.
    pub fn count(&self, action: &str) -> usize {
        self.calls.iter().filter(|call| call.action == action).count()
    }

    /// Machines that are neither ended nor being ended, oldest first.
    pub fn alive(&self) -> Vec<&Machine> {
        let now = self.now();
        let mut alive: Vec<&Machine> = self.machines.values().filter(|machine| machine.is_alive(now)).collect();
        alive.sort_by_key(|machine| (machine.launched, machine.id.clone()));
        alive
    }

    /// How many machines were ever made under each token, by zone: a well-behaved client has one zone a token, and never two machines.
    pub fn machines_by_token(&self) -> BTreeMap<String, BTreeMap<String, usize>> {
        let mut found: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for machine in self.machines.values() {
            *found.entry(machine.token.clone()).or_default().entry(machine.zone.clone()).or_default() += 1;
        }
        found
    }

    /// The state of a machine now, as it truly is.
    pub fn state(&self, id: &str) -> Option<State> {
        self.machines.get(id).and_then(|machine| machine.state(self.now()))
    }

    /// Takes a Spot machine back: the notice comes at that time, the end 120 s later. One that has ended before is left alone.
    pub fn reclaim(&mut self, id: &str, at: Timestamp) {
        let shutting_down = self.shutting_down;
        if let Some(machine) = self.machines.get_mut(id).filter(|machine| machine.is_alive(at)) {
            machine.reclaimed = Some(at);
            let end = at + NOTICE;
            let message = "Spot instance termination";
            machine.end(end, end + shutting_down, "Server.SpotInstanceTermination", message);
        }
    }

    /// Ends a machine at once, for a reason such as `Client.InternalError`.
    pub fn end_by(&mut self, id: &str, code: &str) {
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(id) {
            machine.end(now, now, code, "ended by the cloud");
        }
    }

    /// Stops a machine, as a hand in the console does.
    pub fn stop(&mut self, id: &str) {
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(id) {
            machine.stopped = Some(now);
        }
    }

    /// Adds a fault.
    pub fn fault(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Ends the machines of capacity blocks that end within half an hour, as EC2 does.
    pub(crate) fn end_blocks(&mut self, now: Timestamp) {
        let shutting_down = self.shutting_down;
        for machine in self.machines.values_mut().filter(|machine| machine.market == Market::Block) {
            let region = self.regions.get(&(machine.account.clone(), machine.region.clone()));
            let reservations = region.map(|region| &region.reservations);
            let block = machine.reservation.as_ref().and_then(|id| reservations.and_then(|all| all.get(id)));
            let Some(at) = block.and_then(|block| block.ends).map(|ends| ends - Duration::from_mins(30)) else { continue };
            if at <= now {
                machine.end(at, at + shutting_down, "Server.ScheduledStop", "the capacity block ends");
            }
        }
    }

    /// Another number that was not given out before.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Another id. Ids come in no order, as on AWS.
    pub(crate) fn next_id(&mut self, prefix: &str) -> String {
        let scrambled = self.next_number().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{prefix}-0{scrambled:016x}")
    }
}

/// A number that a text always has (FNV-1a, cut to 60 bits).
pub(crate) fn scrambled(text: &str) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    text.bytes().fold(0xCBF2_9CE4_8422_2325, fold) >> 4
}
