//! The autoscaler's flags and its release.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use stoker_core::base::units::MiB;

use super::ca_client::GroupOptions;

/// Releases that behave alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// 1.30 and its neighbours.
    V1_30,
    /// 1.34 and its neighbours.
    V1_34,
    /// 1.36 and later.
    V1_36,
}

impl Generation {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::V1_30, Self::V1_34, Self::V1_36];

    /// Whether missing nodes count as coming only while the autoscaler itself asked for them and the group is not backed off.
    pub const fn upcoming_needs_own_request(self) -> bool {
        matches!(self, Self::V1_36)
    }

    /// Whether a request that ran out of time is taken back by `DecreaseTargetSize`.
    pub const fn takes_timed_out_requests_back(self) -> bool {
        matches!(self, Self::V1_36)
    }

    /// Whether the time that a registered node may take to become Ready comes from `GetOptions`, where the wire has no field
    /// for it and so a filled answer makes it nought.
    pub const fn startup_time_from_options(self) -> bool {
        matches!(self, Self::V1_36)
    }

    /// Whether an empty reply of the expander means "do not scale up now".
    pub const fn empty_reply_is_veto(self) -> bool {
        matches!(self, Self::V1_34 | Self::V1_36)
    }

    /// Whether a failing template ends the loop.
    pub const fn template_error_ends_loop(self) -> bool {
        matches!(self, Self::V1_30)
    }

    /// Whether one group without a template blocks the scale-up of all.
    pub const fn missing_template_blocks_all(self) -> bool {
        matches!(self, Self::V1_30 | Self::V1_34)
    }

    /// Whether every Ready node is asked for its group before the refresh, to see whether all of its devices are there.
    pub const fn looks_for_devices(self) -> bool {
        matches!(self, Self::V1_36)
    }

    /// Whether the resources of the cluster are counted node by node, before a scale-up as before a scale-down; else by target
    /// size and template, and before a scale-up only.
    pub const fn counts_by_node(self) -> bool {
        matches!(self, Self::V1_36)
    }

    /// Whether nothing is looked for that may go while no node could: none of a group above its minimum.
    pub const fn rests_without_candidates(self) -> bool {
        matches!(self, Self::V1_34 | Self::V1_36)
    }

    /// Whether how long a node must be unneeded is read when it is found so, and not only when it may go.
    pub const fn reads_unneeded_time_early(self) -> bool {
        matches!(self, Self::V1_36)
    }

    /// Whether a node on its way out is no template, not even the last that is left.
    pub const fn leaving_node_is_no_template(self) -> bool {
        matches!(self, Self::V1_34)
    }

    /// Whether every node is asked for its group once more when the templates are known.
    pub const fn asks_again_after_templates(self) -> bool {
        matches!(self, Self::V1_30)
    }

    /// Whether the group of an instance that could not be created is asked for, and not only known from the list it was in.
    pub const fn asks_whose_failed(self) -> bool {
        matches!(self, Self::V1_30)
    }

    /// Whether the loop ends once a group was asked to grow for pods.
    pub const fn scale_up_ends_loop(self) -> bool {
        matches!(self, Self::V1_30)
    }

    /// Whether the loop ends once instances that could not be created were deleted.
    pub const fn clean_up_ends_loop(self) -> bool {
        matches!(self, Self::V1_30)
    }
}

/// A filter of the expander chain. What is left after the last is drawn by lot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expander {
    /// Our own, asked over the wire.
    Grpc,
    /// The group that leaves the least share of CPU and memory unused; sees neither GPUs nor prices.
    LeastWaste,
}

/// The flags that matter, under their own names where not said otherwise.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Settings {
    /// The release.
    pub generation: Generation,
    /// `--scan-interval`: the longest wait between loops.
    pub scan_interval: SignedDuration,
    /// `--frequent-loops-enabled`: after a loop that scaled, the next starts at once. As that one meets the deletions of the one
    /// before, a node whose deletion fails is then tried again only after its whole unneeded time, else in the next loop.
    pub frequent_loops: bool,
    /// How old the oldest waiting pod must be; not a flag.
    pub pod_hold: SignedDuration,
    /// How old the oldest waiting GPU pod must be; not a flag. While it is younger the whole scale-up and scale-down waits.
    pub gpu_pod_hold: SignedDuration,
    /// `--max-node-provision-time`.
    pub max_node_provision: SignedDuration,
    /// `--max-node-startup-time`: how long a registered node may take to become Ready.
    pub max_node_startup: SignedDuration,
    /// `--scale-down-enabled`.
    pub scale_down: bool,
    /// `--scale-down-unneeded-time`.
    pub scale_down_unneeded: SignedDuration,
    /// `--scale-down-unready-time`.
    pub scale_down_unready: SignedDuration,
    /// `--scale-down-delay-after-add`.
    pub scale_down_delay_after_add: SignedDuration,
    /// `--scale-down-delay-after-delete`; nought unless set.
    pub scale_down_delay_after_delete: SignedDuration,
    /// `--scale-down-delay-after-failure`.
    pub scale_down_delay_after_failure: SignedDuration,
    /// `--scale-down-utilization-threshold`.
    pub utilization_threshold: f64,
    /// `--scale-down-gpu-utilization-threshold`.
    pub gpu_utilization_threshold: f64,
    /// `--ignore-daemonsets-utilization`.
    pub ignore_daemon_sets: bool,
    /// `--unremovable-node-recheck-timeout`: how long a node whose pods had nowhere to go is not looked at.
    pub unremovable_recheck: SignedDuration,
    /// `--max-scale-down-parallelism`.
    pub max_scale_down_parallelism: usize,
    /// `--max-drain-parallelism`.
    pub max_drain_parallelism: usize,
    /// `--node-delete-delay-after-taint`.
    pub node_delete_delay_after_taint: SignedDuration,
    /// `--max-graceful-termination-sec`: how long a drain may take.
    pub max_graceful_termination: SignedDuration,
    /// `--ok-total-unready-count`.
    pub ok_total_unready_count: i32,
    /// `--max-total-unready-percentage`.
    pub max_total_unready_percentage: i32,
    /// `--enforce-node-group-min-size`.
    pub enforce_min_size: bool,
    /// `--initial-node-group-backoff-duration`.
    pub initial_backoff: SignedDuration,
    /// `--max-node-group-backoff-duration`.
    pub max_backoff: SignedDuration,
    /// `--node-group-backoff-reset-timeout`.
    pub backoff_reset: SignedDuration,
    /// `--expander`.
    pub expanders: Vec<Expander>,
    /// `--max-nodes-total`; nought for no limit.
    pub max_nodes_total: i32,
    /// `--max-nodes-per-scaleup`.
    pub max_nodes_per_scale_up: i32,
    /// The upper end of `--cores-total`.
    pub max_cores: Option<u64>,
    /// The upper end of `--memory-total`.
    pub max_memory: Option<MiB>,
    /// The upper ends of `--gpu-total`, by the value of the GPU label.
    pub max_gpus: BTreeMap<String, u64>,
    /// What draws the lots where the expanders leave more than one group.
    pub lot_seed: u64,
}

impl Settings {
    /// The defaults of that release.
    pub fn new(generation: Generation) -> Self {
        Self {
            generation,
            scan_interval: SignedDuration::from_secs(10),
            frequent_loops: generation == Generation::V1_36,
            pod_hold: SignedDuration::from_secs(2),
            gpu_pod_hold: SignedDuration::from_secs(30),
            max_node_provision: SignedDuration::from_mins(15),
            max_node_startup: SignedDuration::from_mins(15),
            scale_down: true,
            scale_down_unneeded: SignedDuration::from_mins(10),
            scale_down_unready: SignedDuration::from_mins(20),
            scale_down_delay_after_add: SignedDuration::from_mins(10),
            scale_down_delay_after_delete: SignedDuration::ZERO,
            scale_down_delay_after_failure: SignedDuration::from_mins(3),
            utilization_threshold: 0.5,
            gpu_utilization_threshold: 0.5,
            ignore_daemon_sets: false,
            unremovable_recheck: SignedDuration::from_mins(5),
            max_scale_down_parallelism: 10,
            max_drain_parallelism: 1,
            node_delete_delay_after_taint: SignedDuration::from_secs(5),
            max_graceful_termination: SignedDuration::from_mins(10),
            ok_total_unready_count: 3,
            max_total_unready_percentage: 45,
            enforce_min_size: false,
            initial_backoff: SignedDuration::from_mins(5),
            max_backoff: SignedDuration::from_mins(30),
            backoff_reset: SignedDuration::from_hours(3),
            expanders: vec![Expander::LeastWaste],
            max_nodes_total: 0,
            max_nodes_per_scale_up: 1000,
            max_cores: None,
            max_memory: None,
            max_gpus: BTreeMap::new(),
            lot_seed: 0,
        }
    }

    /// The flags of our manifests: the newest release; our expander first; floors enforced; loops at once; its own windows short,
    /// so that those of the policy decide; and more time to register than Stoker itself gives a machine.
    pub fn recommended() -> Self {
        Self {
            frequent_loops: true,
            max_node_provision: SignedDuration::from_mins(20),
            scale_down_unneeded: SignedDuration::from_mins(1),
            scale_down_unready: SignedDuration::from_mins(5),
            scale_down_delay_after_add: SignedDuration::from_mins(1),
            enforce_min_size: true,
            expanders: vec![Expander::Grpc, Expander::LeastWaste],
            ..Self::new(Generation::V1_36)
        }
    }

    /// The same flags on another release.
    #[must_use]
    pub fn on(self, generation: Generation) -> Self {
        Self { generation, ..self }
    }

    /// What a group gets that says nothing of its own.
    pub(super) const fn group_options(&self) -> GroupOptions {
        GroupOptions {
            utilization_threshold: self.utilization_threshold,
            gpu_utilization_threshold: self.gpu_utilization_threshold,
            ignore_daemon_sets: self.ignore_daemon_sets,
            unneeded: self.scale_down_unneeded,
            unready: self.scale_down_unready,
            max_node_provision: self.max_node_provision,
        }
    }
}
