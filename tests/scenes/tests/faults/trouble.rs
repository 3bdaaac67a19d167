//! What goes wrong, drawn by lot.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use stoker_core::facts::reading::DriverState;
use stoker_scenes::{Pod, Scene};

/// Something that ends again.
#[derive(Debug, Clone)]
enum End {
    Stock(String),
    Probe(String),
    AllProbes,
    Provider,
    Autoscaler,
    Cordon(String),
    Hold(String),
    Watch,
    Inventory,
    Answers,
    Unheard,
    Ready(String),
    Budgets,
    Driver(String),
    Notice(String),
}

/// The lots, and what has to end.
pub(crate) struct Trouble {
    lots: ChaCha8Rng,
    pools: Vec<String>,
    passed: SignedDuration,
    ends: Vec<(SignedDuration, End)>,
    pods: u32,
    skew: i64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

const MARKETS: [&str; 7] =
    ["zone-a/g6.xlarge/spot", "zone-b", "zone-c/g6.xlarge", "/spot", "g6.xlarge", "zone-a", "g2-standard-4"];

/// Most pods at a time: as many as every policy can serve.
const MOST_PODS: usize = 7;

/// Codes of every class.
const XIDS: [u32; 10] = [13, 31, 43, 48, 63, 74, 79, 94, 119, 121];

impl Trouble {
    pub(crate) fn new(lots: ChaCha8Rng, pools: Vec<&str>) -> Self {
        let pools = pools.into_iter().map(ToOwned::to_owned).collect();
        Self { lots, pools, passed: SignedDuration::ZERO, ends: Vec::new(), pods: 0, skew: 0, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// One of them; `None` of none.
    fn one(&mut self, of: &[String]) -> Option<String> {
        if of.is_empty() { None } else { Some(of[self.lots.random_range(0..of.len())].clone()) }
    }

    fn until(&mut self, most_seconds: i64, end: End) {
        let after = SignedDuration::from_secs(self.lots.random_range(1..=most_seconds));
        self.ends.push((self.passed + after, end));
    }

    fn has(&self, is: impl Fn(&End) -> bool) -> bool {
        self.ends.iter().any(|(_, end)| is(end))
    }

    /// One thing happens; how long it is until the next.
    pub(crate) fn happens(&mut self, scene: &mut Scene) -> SignedDuration {
        let now = self.passed;
        let (due, later) = std::mem::take(&mut self.ends).into_iter().partition(|(at, _)| *at <= now);
        self.ends = later;
        let due: Vec<(SignedDuration, End)> = due;
        for (_, end) in due {
            Self::end(scene, &end);
        }
        // Half of what happens is work: without it there is nothing to break.
        if self.lots.random_bool(0.5) {
            self.work(scene)
        } else {
            self.fault(scene)
        }
        let wait = SignedDuration::from_millis(self.lots.random_range(500..180_000));
        let soonest = self.ends.iter().map(|(at, _)| *at - now).min().unwrap_or(wait);
        let wait = wait.min(soonest.max(SignedDuration::from_secs(1)));
        self.passed += wait;
        wait
    }

    fn work(&mut self, scene: &mut Scene) {
        let pods = scene.pods_there();
        if (pods.len() >= MOST_PODS || self.lots.random_bool(0.1))
            && let Some(pod) = self.one(&pods)
        {
            self.count("pods taken away");
            scene.finish(&pod);
            return;
        }
        let pools = self.pools.clone();
        let Some(pool) = self.one(&pools) else { return };
        for _ in 0..self.lots.random_range(1..=2) {
            let mut pod = Pod::of(&pool).runs(&format!("{}s", self.lots.random_range(60..2_400)));
            if self.lots.random_bool(0.2) {
                pod = pod.quiet();
            }
            if self.lots.random_bool(0.1) {
                pod = pod.bare();
            }
            if self.lots.random_bool(0.3) {
                pod = pod.saves(&format!("{}s", self.lots.random_range(1..60)));
            }
            self.pods += 1;
            self.count("pods");
            scene.pod(&format!("ns/p{}", self.pods), pod);
        }
    }

    fn fault(&mut self, scene: &mut Scene) {
        let nodes = scene.nodes_with_probe();
        let node = self.one(&nodes);
        match (self.lots.random_range(0..26), node) {
            (0 | 1, _) => {
                let market = MARKETS[self.lots.random_range(0..MARKETS.len())];
                if !self.has(|end| matches!(end, End::Stock(part) if part == market)) {
                    self.count("markets sold out");
                    scene.sell_out(market);
                    self.until(2_400, End::Stock(market.to_owned()));
                }
            }
            (2, _) => {
                let zone = ["zone-a", "zone-b", "zone-c"][self.lots.random_range(0..3)];
                let market = format!("{zone}/g6.xlarge/spot");
                if !self.has(|end| matches!(end, End::Stock(part) if *part == market)) {
                    self.count("spot waves");
                    scene.spot_wave(&market, "2m");
                    self.until(2_400, End::Stock(market));
                }
            }
            (3 | 4, Some(node)) if scene.is_spot(&node) => {
                self.count("reclaim notices");
                scene.notice(&node, ["30s", "2m"][self.lots.random_range(0..2)]);
                if self.lots.random_bool(0.3) {
                    self.until(100, End::Notice(node));
                }
            }
            (5, Some(node)) if scene.is_spot(&node) => {
                self.count("machines that vanish");
                scene.vanishes(&node);
            }
            (6 | 7, Some(node)) => {
                self.count("XIDs");
                scene.xid(&node, 0, XIDS[self.lots.random_range(0..XIDS.len())]);
            }
            (8, Some(node)) => {
                self.count("GPUs that break");
                match self.lots.random_range(0..3) {
                    0 => scene.memory_errors(&node, 0, 3),
                    1 => scene.loses_gpu(&node, 0),
                    _ => scene.wants(&node, 0, self.lots.random_range(1..=2)),
                }
            }
            (9, Some(node)) => {
                self.count("drivers that reset");
                scene.driver(&node, [DriverState::Hung, DriverState::DriverNotLoaded][self.lots.random_range(0..2)]);
                self.until(600, End::Driver(node));
            }
            (10..=12, Some(node)) => {
                self.count("probes that lapse");
                scene.probe(&node, false);
                self.until(1_200, End::Probe(node));
            }
            (13, _) => {
                self.count("all probes lapse");
                scene.all_probes(false);
                self.until(900, End::AllProbes);
            }
            (14 | 15, _) if !self.has(|end| matches!(end, End::Provider)) => {
                self.count("provider restarts");
                scene.provider_dies();
                let most = if self.lots.random_bool(0.7) { 30 } else { 1_200 };
                self.until(most, End::Provider);
            }
            (16, _) if !self.has(|end| matches!(end, End::Provider | End::Autoscaler)) => {
                self.count("autoscaler restarts");
                if self.lots.random_bool(0.5) {
                    scene.autoscaler_runs(false);
                    self.until(900, End::Autoscaler);
                } else {
                    scene.autoscaler_restarts();
                }
            }
            (17, _) => {
                self.count("clock jumps");
                // Never more than three hours away.
                let to = if self.lots.random_bool(0.4) { 0 } else { self.lots.random_range(-10_800..10_800) };
                scene.clock_jumps(&format!("{}s", to - self.skew));
                self.skew = to;
            }
            (18, Some(node)) => {
                self.count("nodes that a user cordons");
                scene.users_cordon(&node, true);
                self.until(1_800, End::Cordon(node));
            }
            (19, Some(node)) => {
                self.count("nodes that a user holds");
                scene.users_hold(&node, true);
                self.until(1_800, End::Hold(node));
            }
            (20, _) => {
                self.count("watches cut");
                scene.watch_works(false);
                self.until(600, End::Watch);
            }
            (21, _) => {
                self.count("inventories stale");
                scene.inventory_works(false);
                self.until(600, End::Inventory);
            }
            (22, _) => {
                self.count("answers lost");
                scene.answers_come(false);
                self.until(300, End::Answers);
            }
            (23, _) => {
                self.count("calls not heard of, deletions repeated");
                scene.calls_heard(false);
                scene.deletions_repeat(true);
                self.until(60, End::Unheard);
            }
            (24, _) => {
                self.count("machines that never join");
                scene.next_machines_never_join(1);
            }
            (25, Some(node)) => {
                self.count("nodes that flap");
                scene.ready(&node, false);
                self.until(120, End::Ready(node));
            }
            (3..=5, _) => {
                self.count("disruption budgets that forbid");
                scene.budgets_forbid(true);
                self.until(1_200, End::Budgets);
            }
            _ => {}
        }
    }

    fn end(scene: &mut Scene, end: &End) {
        match end {
            End::Stock(part) => scene.restock(part),
            End::Probe(node) => scene.probe(node, true),
            End::AllProbes => scene.all_probes(true),
            End::Provider => scene.provider_lives(),
            End::Autoscaler => scene.autoscaler_runs(true),
            End::Cordon(node) => scene.users_cordon(node, false),
            End::Hold(node) => scene.users_hold(node, false),
            End::Watch => scene.watch_works(true),
            End::Inventory => scene.inventory_works(true),
            End::Answers => scene.answers_come(true),
            End::Unheard => {
                scene.calls_heard(true);
                scene.deletions_repeat(false);
            }
            End::Ready(node) => scene.ready(node, true),
            End::Budgets => scene.budgets_forbid(false),
            End::Driver(node) => {
                if scene.nodes_with_probe().contains(node) {
                    scene.driver(node, DriverState::Ready);
                }
            }
            End::Notice(node) => {
                if scene.nodes_with_probe().contains(node) {
                    scene.withdraw(node);
                }
            }
        }
    }

    /// All faults end, and no new work comes.
    pub(crate) fn ends(&mut self, scene: &mut Scene) {
        for (_, end) in std::mem::take(&mut self.ends) {
            Self::end(scene, &end);
        }
        scene.clock_jumps(&format!("{}s", -self.skew));
        scene.next_machines_never_join(0);
        scene.probes_speak();
    }
}
