//! Capacity policies as plain data.

/// What decides which nodes are bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buys {
    /// Cluster Autoscaler's default expander: the group that wastes the least CPU and memory. It knows neither GPUs nor
    /// prices.
    LeastWaste,
    /// Cluster Autoscaler's price expander, with pod prices as of GCE.
    Price,
    /// Karpenter: pods are packed while any type holds them together, then the cheapest such type is bought.
    CheapestFit,
    /// The single node that costs the least per dollar that its pods would cost on nodes of their own.
    BestNode,
    /// The same measure for a whole group, as an expander behind Cluster Autoscaler can choose. The autoscaler fixes
    /// the number of nodes.
    BestGroup,
}

/// How the scheduler scores nodes that hold a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// The node that it leaves the least free: GPUs first, then CPU.
    #[default]
    MostAllocated,
    /// The node that it leaves the most free: the worst case of the scheduler's default.
    LeastAllocated,
}

/// When an empty node is given back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Idle {
    /// After so long.
    After {
        /// Seconds.
        seconds: f64,
    },
    /// After every type has idled for the same money.
    EqualPay {
        /// Seconds times its price in dollars per hour that a node may idle.
        pay: f64,
        /// Seconds at most.
        most: f64,
    },
}

impl Idle {
    /// Seconds for a node of that price in dollars per hour.
    pub fn seconds(self, price: f64) -> f64 {
        match self {
            Self::After { seconds } => seconds,
            Self::EqualPay { pay, most } => most.min(pay / price),
        }
    }
}

/// What best-effort pods do while no spot pool has room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WithoutRoom {
    /// They wait. Spot is asked again every two minutes.
    Waits,
    /// They run on demand.
    OnDemand,
    /// They wait while they have done at least their part of the time until their deadline, and run on demand once they
    /// fall behind. On demand, a pod leaves for spot when it is ahead again.
    UniformProgress {
        /// Boots before its last moment at which a pod runs on demand in any case.
        safe_boots: f64,
    },
}

/// Use of spot for best-effort pods: the cheapest pool with room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot {
    /// What they do while no pool has room.
    pub without_room: WithoutRoom,
}

/// Which nodes a consolidation looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// Underutilized ones: up to eight are emptied onto others, or replaced by one cheaper node; else a single one. An
    /// on-demand node may be replaced by spot. Nodes under replacement are at most a tenth of the fleet.
    Underutilized,
    /// On-demand nodes whose pods may all run on spot: each is replaced as soon as a pool has room.
    OnDemandNodes,
}

/// Karpenter's consolidation, every minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Consolidation {
    /// Seconds that a node's pods have to have run on it.
    pub after: f64,
    /// Seconds that a moved pod takes to start again.
    pub restart: f64,
    /// Whether best-effort pods may be moved, like latency-sensitive ones.
    pub moves_best_effort: bool,
    /// Which nodes it looks for.
    pub looks: Looks,
}

/// Free GPUs of a type that are held ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    /// Name of the type.
    pub type_name: String,
    /// Free GPUs.
    pub gpus: u32,
}

/// A capacity policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What decides which nodes are bought.
    pub buys: Buys,
    /// Seconds from a pod that waits to the purchase.
    pub scan: f64,
    /// Seconds that a pod waits before nodes are bought for it.
    pub hold: f64,
    /// When an empty node is given back.
    pub idle: Idle,
    /// Seconds after any purchase in which no node is given back.
    pub after_purchase: f64,
    /// Seconds that a node is kept at least.
    pub least_life: f64,
    /// Class taints: a pod may only use a type on which its largest share of a node costs at most so many times its own
    /// cheapest node.
    pub taints: Option<f64>,
    /// Consolidation.
    pub consolidation: Option<Consolidation>,
    /// Use of spot.
    pub spot: Option<Spot>,
    /// Floors, filled in this order.
    pub floors: Vec<Floor>,
    /// How the scheduler scores nodes.
    pub scheduler: Scheduler,
}

impl Policy {
    /// Buys so after `scan` seconds, and gives empty nodes back after `idle` seconds; nothing else.
    const fn plain(buys: Buys, scan: f64, idle: f64) -> Self {
        Self {
            buys,
            scan,
            hold: 0.0,
            idle: Idle::After { seconds: idle },
            after_purchase: 0.0,
            least_life: 0.0,
            taints: None,
            consolidation: None,
            spot: None,
            floors: Vec::new(),
            scheduler: Scheduler::MostAllocated,
        }
    }

    /// Cluster Autoscaler by its defaults (B1).
    pub const fn autoscaler() -> Self {
        let mut policy = Self::plain(Buys::LeastWaste, 10.0, 600.0);
        policy.hold = 30.0;
        policy.after_purchase = 600.0;
        policy
    }

    /// Cluster Autoscaler with its price expander (B2).
    pub const fn autoscaler_by_price() -> Self {
        let mut policy = Self::autoscaler();
        policy.buys = Buys::Price;
        policy
    }

    /// Karpenter that removes only empty nodes, at once (B3a).
    pub const fn karpenter_when_empty() -> Self {
        Self::plain(Buys::CheapestFit, 2.0, 0.0)
    }

    /// Karpenter that also consolidates, both after so many seconds (B3b). Its default is 0.
    pub const fn karpenter(after: f64) -> Self {
        let mut policy = Self::plain(Buys::CheapestFit, 2.0, after);
        policy.consolidation =
            Some(Consolidation { after, restart: 30.0, moves_best_effort: false, looks: Looks::Underutilized });
        policy
    }

    /// The reference that buys nodes by itself, with an idle window in seconds.
    pub const fn own_choice(idle: f64) -> Self {
        Self::plain(Buys::BestNode, 2.0, idle)
    }

    /// The reference on spot alone (B5).
    pub const fn spot_only() -> Self {
        Self::own_choice(300.0).with_spot(WithoutRoom::Waits)
    }

    /// The reference on the cheapest spot pool with room, or else on demand, where a pod then stays (B6).
    pub const fn sticky_fallback() -> Self {
        Self::own_choice(300.0).with_spot(WithoutRoom::OnDemand)
    }

    /// The reference that waits for spot while uniform progress to the deadline allows (B7).
    pub const fn uniform_progress(safe_boots: f64) -> Self {
        Self::own_choice(300.0).with_spot(WithoutRoom::UniformProgress { safe_boots })
    }

    /// The same policy with spot for best-effort pods.
    #[must_use]
    pub const fn with_spot(mut self, without_room: WithoutRoom) -> Self {
        self.spot = Some(Spot { without_room });
        self
    }

    /// The same policy with nodes that are replaced by spot once their pods ran for `after` seconds. A moved pod takes
    /// `restart` seconds to start again.
    #[must_use]
    pub const fn with_return(mut self, looks: Looks, after: f64, restart: f64) -> Self {
        self.consolidation = Some(Consolidation { after, restart, moves_best_effort: true, looks });
        self
    }

    /// The reference that chooses behind Cluster Autoscaler, with tight class taints and nodes that live 15 minutes.
    pub const fn behind_autoscaler(idle: Idle) -> Self {
        let mut policy = Self::plain(Buys::BestGroup, 10.0, 0.0).with_taints(1.001);
        policy.hold = 30.0;
        policy.idle = idle;
        policy.least_life = 900.0;
        policy
    }

    /// Policies of the published comparison by name, stock ones first.
    pub fn published() -> Vec<(&'static str, Self)> {
        let pay = |pay, most| Self::behind_autoscaler(Idle::EqualPay { pay, most });
        vec![
            ("Cluster Autoscaler", Self::autoscaler()),
            ("Cluster Autoscaler by price", Self::autoscaler_by_price()),
            ("Cluster Autoscaler by price, class taints", Self::autoscaler_by_price().with_taints(1.3)),
            ("Karpenter when empty", Self::karpenter_when_empty()),
            ("Karpenter", Self::karpenter(0.0)),
            ("Karpenter after 10 min", Self::karpenter(600.0)),
            ("Karpenter after 10 min, class taints", Self::karpenter(600.0).with_taints(1.3)),
            ("own choice, 5 min", Self::own_choice(300.0)),
            ("own choice, 5 min, class taints", Self::own_choice(300.0).with_taints(1.001)),
            ("behind the autoscaler, at once", Self::behind_autoscaler(Idle::After { seconds: 0.0 })),
            ("behind the autoscaler, equal pay 300", pay(300.0, 600.0)),
            ("behind the autoscaler, equal pay 600", pay(600.0, 1200.0)),
        ]
    }

    /// The same policy with class taints (B4).
    #[must_use]
    pub const fn with_taints(mut self, most: f64) -> Self {
        self.taints = Some(most);
        self
    }

    /// The same policy with floors.
    #[must_use]
    pub fn with_floors(self, floors: &[(&str, u32)]) -> Self {
        let floor = |(name, gpus): &(&str, u32)| Floor { type_name: (*name).to_owned(), gpus: *gpus };
        Self { floors: floors.iter().map(floor).collect(), ..self }
    }

    /// The same policy under a scheduler that spreads pods.
    #[must_use]
    pub const fn spread(mut self) -> Self {
        self.scheduler = Scheduler::LeastAllocated;
        self
    }
}
