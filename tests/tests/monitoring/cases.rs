//! Each alert, series by which it fires, and series by which it does not. Values are in promtool's words: `90x3` is 90 four times, `_x3` three
//! missing samples.

/// One alert.
pub(super) struct Case {
    /// Its name.
    pub(super) alert: &'static str,
    /// How often there are samples, and rules are evaluated.
    pub(super) every: &'static str,
    /// When it is looked at.
    pub(super) at: &'static str,
    /// Series that are there in every test of it.
    pub(super) common: &'static [Series],
    /// More series by which it fires.
    pub(super) firing: &'static [Series],
    /// More series by which it does not, several times.
    pub(super) silent: &'static [&'static [Series]],
    /// The labels of what fires.
    pub(super) labels: &'static [(&'static str, &'static str)],
    /// What people are told.
    pub(super) summary: &'static str,
}

/// A series and its values.
pub(super) type Series = (&'static str, &'static str);

const N1: Series = (
    r#"stoker_node_info{node="n1",pool="infer",workload="inference",instance_type="g6.12xlarge",zone="a",capacity_type="spot"}"#,
    "1x3000",
);
const N2: Series = (
    r#"stoker_node_info{node="n2",pool="infer",workload="inference",instance_type="g6.12xlarge",zone="a",capacity_type="spot"}"#,
    "1x3000",
);
const T1: Series = (
    r#"stoker_node_info{node="t1",pool="train",workload="training",instance_type="p5.48xlarge",zone="a",capacity_type="spot"}"#,
    "1x3000",
);
/// Two GPUs for two dollars an hour.
const N1_PRICE: [Series; 2] =
    [(r#"stoker_node_usd_per_hour{node="n1"}"#, "2x3000"), (r#"stoker_node_gpus{node="n1"}"#, "2x3000")];

const UTIL: &str = r#"DCGM_FI_DEV_GPU_UTIL{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const UTIL_1: &str = r#"DCGM_FI_DEV_GPU_UTIL{Hostname="n1",gpu="1",UUID="GPU-1"}"#;
const SM_OF_N1: &str = r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const INSTANCE_1: &str = r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="n1",gpu="0",UUID="GPU-0",GPU_I_ID="1"}"#;
const INSTANCE_2: &str = r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="n1",gpu="0",UUID="GPU-0",GPU_I_ID="2"}"#;
const INSTANCE_3: &str = r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="n1",gpu="0",UUID="GPU-0",GPU_I_ID="3"}"#;
const INSTANCE_3_ENGINE: &str = r#"DCGM_FI_PROF_GR_ENGINE_ACTIVE{Hostname="n1",gpu="0",UUID="GPU-0",GPU_I_ID="3"}"#;
const TRAINING_UTIL: &str = r#"DCGM_FI_DEV_GPU_UTIL{Hostname="t1",gpu="0",UUID="GPU-T"}"#;
const TRAINING_SM: &str = r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="t1",gpu="0",UUID="GPU-T"}"#;
const USED: &str = r#"DCGM_FI_DEV_FB_USED{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const FREE: &str = r#"DCGM_FI_DEV_FB_FREE{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const TEMPERATURE: &str = r#"DCGM_FI_DEV_GPU_TEMP{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const XID: &str = r#"DCGM_FI_DEV_XID_ERRORS{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const POWER: &str = r#"DCGM_FI_DEV_POWER_USAGE{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const POWER_LIMIT: &str = r#"DCGM_FI_DEV_ENFORCED_POWER_LIMIT{Hostname="n1",gpu="0",UUID="GPU-0"}"#;
const SPEND: &str = r#"stoker_spend_usd_per_hour{pool="infer",capacity_type="on-demand"}"#;
const BUSY: &str = r#"stoker_gpus{pool="infer",workload="inference",capacity_type="on-demand",use="busy"}"#;
const TRAINING_SPOT: &str = r#"stoker_gpus{pool="train",workload="training",capacity_type="spot",use="busy"}"#;
const TRAINING_ON_DEMAND: &str = r#"stoker_gpus{pool="train",workload="training",capacity_type="on-demand",use="busy"}"#;
const BUDGET_SPEND: &str = r#"stoker_budget_spend_usd_per_hour{scope="pool",pool="train"}"#;
const FLOOR_MISSING: &str = r#"stoker_floor_missing_nodes{pool="infer"}"#;
const UNHEALTHY: &str = r#"stoker_verdict_nodes{pool="infer",verdict="unhealthy"}"#;
const QUOTA_USED: &str = r#"stoker_quota_used{quota="L-DB2E81BA",cloud="aws",region="us-east-1",unit="vcpus"}"#;
const LIST_AGE: &str = r#"stoker_price_age_seconds{pool="infer",kind="list"}"#;

const GPU_LABELS: [(&str, &str); 5] =
    [("node", "n1"), ("gpu", "0"), ("UUID", "GPU-0"), ("pool", "infer"), ("workload", "inference")];

/// What DCGM has renamed, by its old names; newer exporters call the node and the UUID otherwise, too.
pub(super) const RENAMED: [(&str, &str); 9] = [
    ("DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_GPU_UTIL_RATIO{"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE{", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{"),
    ("DCGM_FI_PROF_SM_ACTIVE{", "DCGM_FI_PROF_SM_UTIL_RATIO{"),
    ("DCGM_FI_DEV_GPU_TEMP{", "DCGM_FI_DEV_GPU_TEMP_CELSIUS{"),
    ("DCGM_FI_DEV_XID_ERRORS{", "DCGM_FI_DEV_XID_ERROR{"),
    ("DCGM_FI_DEV_POWER_USAGE{", "DCGM_FI_DEV_BOARD_POWER_WATTS{"),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT{", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS{"),
    ("{Hostname=", "{hostname="),
    (",UUID=", ",uuid="),
];

/// Every alert.
pub(super) const CASES: &[Case] = &[
    Case {
        alert: "StokerGpuIdle",
        every: "1m",
        at: "40m",
        common: &[N1, N1_PRICE[0], N1_PRICE[1], (UTIL_1, "90x60")],
        firing: &[(UTIL, "0x60")],
        silent: &[
            // A minute of work starts the half hour anew.
            &[(UTIL, "0x20 60 0x40")],
            // Eight minutes without a reading do, too: unknown is not idle.
            &[(UTIL, "0x20 _x8 0x40")],
            &[(UTIL, "6x60")],
            &[],
            // A split GPU is as busy as its busiest instance.
            &[(INSTANCE_1, "0x60"), (INSTANCE_2, "0.2x60")],
        ],
        // One of two GPUs for $2 an hour.
        labels: &[("node", "n1"), ("pool", "infer"), ("workload", "inference"), ("severity", "warning")],
        summary: "GPUs of n1 (pool infer) have been below 5% for 30m: $1.00 lost an hour",
    },
    Case {
        alert: "StokerGpuInstanceIdle",
        every: "1m",
        at: "40m",
        common: &[N1, N1_PRICE[0], N1_PRICE[1], (INSTANCE_1, "0.9x60"), (INSTANCE_2, "0.6x60")],
        firing: &[(INSTANCE_3, "0x60")],
        silent: &[
            &[(INSTANCE_3, "0x20 0.6x60")],
            &[(INSTANCE_3, "0x20 _x8 0x40")],
            &[],
            // By its engine it works, whatever its multiprocessors say.
            &[(INSTANCE_3, "0x60"), (INSTANCE_3_ENGINE, "0.5x60")],
            // A GPU of which no instance works is idle as a whole.
            &[(r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="n1",gpu="1",UUID="GPU-1",GPU_I_ID="1"}"#, "0x60")],
        ],
        // One of three instances of one of two GPUs for $2 an hour.
        labels: &[("node", "n1"), ("pool", "infer"), ("workload", "inference"), ("severity", "warning")],
        summary: "MIG instances of n1 (pool infer) have been below 5% for 30m while others of their GPU worked: $0.33 lost an hour",
    },
    Case {
        alert: "StokerGpuUtilizationLow",
        every: "1m",
        at: "40m",
        common: &[N1],
        firing: &[(UTIL, "20x60"), (UTIL_1, "40x60")],
        silent: &[&[(UTIL, "20x60"), (UTIL_1, "60x60")], &[(UTIL, "20x15 90x10 20x40")]],
        labels: &[("pool", "infer"), ("workload", "inference"), ("severity", "info")],
        summary: "GPUs of pool infer have been below 40% on average for 30m: 30%",
    },
    Case {
        alert: "StokerGpuUtilizationLowForADay",
        every: "1m",
        at: "14h",
        common: &[N1],
        firing: &[(UTIL, "20x840")],
        // 6 h at 20 % and 8 h at 60 %: 43 %. And one of which only the last five hours are known.
        silent: &[&[(UTIL, "20x360 60x480")], &[(UTIL, "_x540 20x300")]],
        labels: &[("pool", "infer"), ("workload", "inference"), ("severity", "warning")],
        summary: "GPUs of pool infer were used to 20% over the last day, below 30%",
    },
    Case {
        alert: "StokerGpuSaturated",
        every: "1m",
        at: "80m",
        common: &[N1, T1],
        firing: &[(UTIL, "99x100")],
        // Training is meant to be full.
        silent: &[
            &[(UTIL, "95x100")],
            &[(TRAINING_UTIL, "99x100")],
            &[(UTIL, "99x30 50x10 99x60")],
            &[(INSTANCE_1, "0.9x100"), (INSTANCE_2, "0.1x100")],
        ],
        labels: &[("pool", "infer"), ("workload", "inference"), ("severity", "warning")],
        summary: "GPUs of pool infer have been above 95% for 1h: requests queue",
    },
    Case {
        alert: "StokerGpuMemoryHigh",
        every: "1m",
        at: "25m",
        common: &[N1],
        firing: &[(USED, "22000x30"), (FREE, "1000x30")],
        silent: &[&[(USED, "10000x30"), (FREE, "13000x30")], &[(USED, "22000x30")]],
        labels: &[("node", "n1"), ("pool", "infer"), ("workload", "inference"), ("severity", "info")],
        // 22000 / 23000.
        summary: "GPU memory of n1 (pool infer) is 95.65% full",
    },
    Case {
        alert: "StokerTrainingSmLow",
        every: "1m",
        at: "50m",
        common: &[N1, T1],
        firing: &[(TRAINING_SM, "0.3x60"), (TRAINING_UTIL, "90x60")],
        silent: &[
            &[(TRAINING_SM, "0.7x60"), (TRAINING_UTIL, "90x60")],
            // An idle GPU is no training that waits.
            &[(TRAINING_SM, "0x60"), (TRAINING_UTIL, "0x60")],
            // Inference is not measured so.
            &[(r#"DCGM_FI_PROF_SM_ACTIVE{Hostname="n1",gpu="0",UUID="GPU-0"}"#, "0.3x60"), (UTIL, "90x60")],
        ],
        labels: &[("pool", "train"), ("workload", "training"), ("severity", "info")],
        summary: "Training in pool train keeps 30% of the multiprocessors at work, below 50%",
    },
    Case {
        alert: "StokerGpuHoursIdle",
        every: "1m",
        at: "14h",
        common: &[
            N1,
            (UTIL_1, "80x840"),
            (r#"DCGM_FI_DEV_GPU_UTIL{Hostname="n1",gpu="2",UUID="GPU-2"}"#, "80x840"),
            (r#"DCGM_FI_DEV_GPU_UTIL{Hostname="n1",gpu="3",UUID="GPU-3"}"#, "80x840"),
        ],
        firing: &[(UTIL, "0x840")],
        silent: &[&[(UTIL, "80x840")], &[]],
        labels: &[("pool", "infer"), ("workload", "inference"), ("severity", "warning")],
        // One of four, all day.
        summary: "25% of the last day's GPU-hours of pool infer were idle, above 20%",
    },
    Case {
        alert: "StokerGpuHot",
        every: "1m",
        at: "15m",
        common: &[N1],
        firing: &[(TEMPERATURE, "90x20")],
        // A node that is not Stoker's is none of its business.
        silent: &[&[(TEMPERATURE, "83x20")], &[(r#"DCGM_FI_DEV_GPU_TEMP{Hostname="other",gpu="0",UUID="GPU-0"}"#, "90x20")]],
        labels: &[GPU_LABELS[0], GPU_LABELS[1], GPU_LABELS[2], GPU_LABELS[3], GPU_LABELS[4], ("severity", "warning")],
        summary: "GPU 0 of n1 (pool infer) is at 90 C, above 83 C",
    },
    Case {
        alert: "StokerGpuPowerHigh",
        every: "1m",
        at: "30m",
        common: &[N1],
        firing: &[(POWER, "285x40"), (POWER_LIMIT, "300x40")],
        silent: &[&[(POWER, "200x40"), (POWER_LIMIT, "300x40")], &[(POWER, "285x40")]],
        labels: &[GPU_LABELS[0], GPU_LABELS[1], GPU_LABELS[2], GPU_LABELS[3], GPU_LABELS[4], ("severity", "info")],
        summary: "GPU 0 of n1 (pool infer) draws 95% of its enforced power limit, above 90%",
    },
    Case {
        alert: "StokerGpuPowerLow",
        every: "1m",
        at: "30m",
        common: &[N1],
        firing: &[(UTIL, "98x40"), (POWER, "150x40"), (POWER_LIMIT, "300x40")],
        // A free GPU draws little, and a busy one much.
        silent: &[
            &[(UTIL, "20x40"), (POWER, "150x40"), (POWER_LIMIT, "300x40")],
            &[(UTIL, "98x40"), (POWER, "200x40"), (POWER_LIMIT, "300x40")],
            &[(UTIL, "98x40"), (POWER, "150x40")],
            // What waits for memory has its multiprocessors at work; and a board of instances is as busy as all of them.
            &[(UTIL, "98x40"), (POWER, "150x40"), (POWER_LIMIT, "300x40"), (SM_OF_N1, "0.9x40")],
            &[(INSTANCE_1, "0.99x40"), (POWER, "150x40"), (POWER_LIMIT, "300x40")],
        ],
        labels: &[GPU_LABELS[0], GPU_LABELS[1], GPU_LABELS[2], GPU_LABELS[3], GPU_LABELS[4], ("severity", "info")],
        summary: "GPU 0 of n1 (pool infer) is busy and draws 50% of its enforced power limit, below 60%",
    },
    Case {
        alert: "StokerGpuXid",
        every: "1m",
        at: "5m",
        common: &[N1],
        firing: &[(XID, "0x2 79x10")],
        // 31 is the application's own, 63 suspect, 0 none.
        silent: &[&[(XID, "31x10")], &[(XID, "63x10")], &[(XID, "0x10")]],
        labels: &[
            GPU_LABELS[0],
            GPU_LABELS[1],
            GPU_LABELS[2],
            GPU_LABELS[3],
            GPU_LABELS[4],
            ("xid", "79"),
            ("severity", "critical"),
        ],
        summary: "GPU 0 of n1 (pool infer) reported XID 79: it needs a reset or another machine",
    },
    Case {
        alert: "StokerGpuXidSuspect",
        every: "1m",
        at: "5m",
        common: &[N1],
        firing: &[(XID, "0x2 63x10")],
        silent: &[&[(XID, "31x10")], &[(XID, "79x10")], &[(XID, "0x10")]],
        labels: &[
            GPU_LABELS[0],
            GPU_LABELS[1],
            GPU_LABELS[2],
            GPU_LABELS[3],
            GPU_LABELS[4],
            ("xid", "63"),
            ("severity", "warning"),
        ],
        summary: "GPU 0 of n1 (pool infer) reported XID 63: look again",
    },
    Case {
        alert: "StokerNodesUnhealthy",
        every: "1m",
        at: "30m",
        common: &[(r#"stoker_verdict_nodes{pool="infer",verdict="busy"}"#, "5x40")],
        firing: &[(UNHEALTHY, "2x40")],
        silent: &[&[(UNHEALTHY, "0x40")], &[(UNHEALTHY, "2x20 0x20")], &[]],
        labels: &[("pool", "infer"), ("severity", "warning")],
        summary: "Nodes of pool infer that have been unhealthy for 15m: 2",
    },
    Case {
        alert: "StokerTemplateTooLarge",
        every: "1m",
        at: "30m",
        common: &[],
        firing: &[(r#"stoker_template_too_large{pool="infer",instance_type="g6.xlarge"}"#, "1x40")],
        silent: &[&[(r#"stoker_template_too_large{pool="infer",instance_type="g6.xlarge"}"#, "1x20 _x20")], &[]],
        labels: &[("instance_type", "g6.xlarge"), ("pool", "infer"), ("severity", "warning")],
        summary: "Nodes of type g6.xlarge in pool infer leave less to pods than their template promised",
    },
    Case {
        alert: "StokerProbesSilent",
        every: "1m",
        at: "30m",
        common: &[N1, N2],
        firing: &[(UTIL, "50x40"), (USED, "1000x40")],
        silent: &[
            &[(UTIL, "50x40"), (USED, "1000x40"), (r#"DCGM_FI_DEV_FB_USED{hostname="n2",gpu="0",UUID="GPU-N"}"#, "1000x40")],
            // Nobody ever measured anything: there are no probes.
            &[],
        ],
        labels: &[("pool", "infer"), ("workload", "inference"), ("severity", "warning")],
        summary: "Nodes of pool infer that send no GPU readings: 1",
    },
    Case {
        alert: "StokerTrainingSpotShareLow",
        every: "1m",
        at: "2h",
        common: &[],
        firing: &[(TRAINING_SPOT, "2x150"), (TRAINING_ON_DEMAND, "8x150")],
        // The last has no training at all.
        silent: &[
            &[(TRAINING_SPOT, "4x150"), (TRAINING_ON_DEMAND, "8x150")],
            &[(TRAINING_SPOT, "0x150"), (TRAINING_ON_DEMAND, "0x150")],
        ],
        labels: &[("pool", "train"), ("severity", "info")],
        summary: "20% of the training GPUs of pool train were spot over the last day, below 30%",
    },
    Case {
        alert: "StokerUnitCostUp",
        every: "1h",
        // Day 8 to 9 against day 1 to 2; the rise is at day 7.
        at: "9d",
        common: &[],
        firing: &[(SPEND, "10x168 20x50"), (BUSY, "4x220")],
        silent: &[
            &[(SPEND, "10x168 11x50"), (BUSY, "4x220")],
            // Twice the cost for twice the work.
            &[(SPEND, "10x168 20x50"), (BUSY, "4x168 8x50")],
            // Nothing is known of a week ago.
            &[(SPEND, "_x168 20x50"), (BUSY, "_x168 8x50")],
        ],
        labels: &[("pool", "infer"), ("severity", "warning")],
        summary: "A busy GPU-hour of pool infer costs 2.00 times what it cost a week ago",
    },
    Case {
        alert: "StokerSpendPace",
        every: "1m",
        at: "2h",
        common: &[(r#"stoker_budget_limit_usd_per_hour{scope="pool",pool="train"}"#, "10x150")],
        firing: &[(BUDGET_SPEND, "9x150")],
        silent: &[&[(BUDGET_SPEND, "5x150")], &[]],
        labels: &[("scope", "pool"), ("pool", "train"), ("severity", "warning")],
        summary: "The last day spent 90% of the budget of pool train",
    },
    Case {
        alert: "StokerPricesStale",
        every: "1m",
        at: "2h",
        common: &[],
        // 100 days; the operator's own prices may be of any age, and 5 days are no age for the others.
        firing: &[(LIST_AGE, "8640000x150")],
        silent: &[
            &[(LIST_AGE, "432000x150"), (r#"stoker_price_age_seconds{pool="infer",kind="spot"}"#, "432000x150")],
            &[(r#"stoker_price_age_seconds{pool="infer",kind="operator"}"#, "8640000x150")],
        ],
        labels: &[("pool", "infer"), ("kind", "list"), ("severity", "warning")],
        summary: "The oldest list price of pool infer is 100d 0h 0m 0s old",
    },
    Case {
        alert: "StokerConsistencyCheckFailed",
        every: "1m",
        at: "10m",
        common: &[],
        firing: &[(r#"stoker_consistency_fault{pool="infer",fault="bad-limits"}"#, "1x20")],
        silent: &[
            &[],
            // It is over.
            &[(r#"stoker_consistency_fault{pool="infer",fault="bad-limits"}"#, "1x3 _x20")],
        ],
        labels: &[("pool", "infer"), ("fault", "bad-limits"), ("severity", "critical")],
        summary: "Internal consistency check failed for pool infer (bad-limits); scale-up is paused",
    },
    Case {
        alert: "StokerJournalFault",
        every: "1m",
        at: "10m",
        common: &[(r#"stoker_journal_fault{fault="lost"}"#, "0x20")],
        firing: &[(r#"stoker_journal_fault{fault="unwritable"}"#, "0x8 1x12")],
        silent: &[
            &[(r#"stoker_journal_fault{fault="unwritable"}"#, "0x20")],
            // Space was freed.
            &[(r#"stoker_journal_fault{fault="unwritable"}"#, "1x5 0x15")],
        ],
        labels: &[("fault", "unwritable"), ("severity", "critical")],
        summary: "Stoker's journal needs attention: unwritable",
    },
    Case {
        alert: "StokerFloorUnmet",
        every: "1m",
        at: "30m",
        common: &[],
        firing: &[(FLOOR_MISSING, "2x40")],
        silent: &[&[(FLOOR_MISSING, "0x40")], &[(FLOOR_MISSING, "2x20 0x20")]],
        labels: &[("pool", "infer"), ("severity", "warning")],
        summary: "Pool infer has lacked 2 nodes of its floor for 15m",
    },
    Case {
        alert: "StokerQuotaNearLimit",
        every: "1m",
        at: "30m",
        common: &[(r#"stoker_quota_limit{quota="L-DB2E81BA",cloud="aws",region="us-east-1",unit="vcpus"}"#, "100x40")],
        firing: &[(QUOTA_USED, "95x40")],
        silent: &[&[(QUOTA_USED, "90x40")], &[(QUOTA_USED, "0x40")]],
        labels: &[
            ("quota", "L-DB2E81BA"),
            ("cloud", "aws"),
            ("region", "us-east-1"),
            ("unit", "vcpus"),
            ("severity", "warning"),
        ],
        summary: "95% of quota L-DB2E81BA (aws us-east-1) is used, above 90%",
    },
    Case {
        alert: "StokerAway",
        every: "1m",
        at: "10m",
        common: &[],
        firing: &[("up", "0x15")],
        silent: &[&[(r#"stoker_build_info{version="0.1.0"}"#, "1x15")]],
        labels: &[("severity", "critical")],
        summary: "Stoker has not been seen for 5 minutes: no node is bought, and no other alert about GPUs can fire",
    },
    Case {
        alert: "StokerGpuUtilizationHigh",
        every: "1m",
        at: "40m",
        common: &[N1, T1],
        firing: &[(UTIL, "90x60")],
        silent: &[
            &[(UTIL, "85x60")],
            // Training is meant to be full.
            &[(TRAINING_UTIL, "99x60")],
            // A burst.
            &[(UTIL, "90x10 60x10 90x10 60x30")],
        ],
        labels: &[("pool", "infer"), ("workload", "inference"), ("severity", "info")],
        summary: "GPUs of pool infer have been above 85% for 15m: 90%",
    },
    Case {
        alert: "StokerPodsWithoutGpu",
        every: "1m",
        at: "40m",
        common: &[(r#"stoker_pods_without_gpu{pool="train"}"#, "0x60")],
        firing: &[(r#"stoker_pods_without_gpu{pool="infer"}"#, "3x60")],
        silent: &[&[(r#"stoker_pods_without_gpu{pool="infer"}"#, "3x20 0x40")], &[]],
        labels: &[("pool", "infer"), ("severity", "info")],
        summary: "Pods that request no GPU on GPU nodes of pool infer: 3",
    },
    Case {
        alert: "StokerPassesFailing",
        every: "30s",
        at: "10m",
        common: &[(r#"stoker_passes_total{result="incomplete"}"#, "0x30")],
        // It made three a sample, and then each was refused.
        firing: &[
            (r#"stoker_passes_total{result="done"}"#, "0+3x10 30x20"),
            (r#"stoker_passes_total{result="refused"}"#, "0x10 0+3x20"),
        ],
        silent: &[
            &[(r#"stoker_passes_total{result="done"}"#, "0+3x30")],
            // A restart in between.
            &[(r#"stoker_passes_total{result="done"}"#, "500x17 0 3 6 9")],
            &[],
        ],
        labels: &[("severity", "critical")],
        summary: "Stoker has made no sound decision for 2 minutes",
    },
    Case {
        alert: "StokerFeedOld",
        every: "30s",
        at: "10m",
        common: &[(r#"stoker_feed_age_seconds{feed="kubernetes"}"#, "30x30")],
        firing: &[(r#"stoker_feed_age_seconds{feed="supplier/aws"}"#, "2x10 2+30x20")],
        silent: &[
            &[(r#"stoker_feed_age_seconds{feed="supplier/aws"}"#, "2x30")],
            // It answered again.
            &[(r#"stoker_feed_age_seconds{feed="supplier/aws"}"#, "2 2+30x14 2x20")],
        ],
        labels: &[("feed", "supplier/aws"), ("severity", "critical")],
        // Ten samples at 2, then ten of 30 s each.
        summary: "Stoker has heard nothing new from supplier/aws for 4m 32s",
    },
    Case {
        alert: "StokerAutoscalerSilent",
        every: "30s",
        at: "20m",
        common: &[(r#"stoker_build_info{version="0.1.0"}"#, "1x50")],
        // It never called.
        firing: &[],
        silent: &[
            &[(r#"stoker_rpc_requests_total{method="Refresh",code="ok"}"#, "0+3x50")],
            // Refused calls are calls: another alert says why.
            &[(r#"stoker_rpc_requests_total{method="Refresh",code="unavailable"}"#, "0+3x50")],
            // It stopped eight minutes ago.
            &[(r#"stoker_rpc_requests_total{method="Refresh",code="ok"}"#, "0+3x24 72x30")],
        ],
        labels: &[("severity", "critical")],
        summary: "No autoscaler has called Stoker for 10 minutes: no node is ordered or removed",
    },
    Case {
        alert: "StokerPolicyRejected",
        every: "1m",
        at: "10m",
        common: &[],
        firing: &[("stoker_policy_faults", "0x2 2x20")],
        silent: &[&[("stoker_policy_faults", "0x20")], &[("stoker_policy_faults", "2x7 0x10")]],
        labels: &[("severity", "warning")],
        summary: "The policy file has 2 faults and is not in use: the last good policy is",
    },
    Case {
        alert: "StokerSteeringFailed",
        every: "1m",
        at: "15m",
        common: &[],
        firing: &[("stoker_steering_faults", "0x2 3x20")],
        silent: &[&[("stoker_steering_faults", "0x20")], &[("stoker_steering_faults", "3x8 0x10")]],
        labels: &[("severity", "warning")],
        summary: "3 objects of Karpenter's are not steered as the policy says",
    },
    Case {
        alert: "StokerDiskLow",
        every: "1m",
        at: "30m",
        common: &[("stoker_state_disk_size_bytes", "1000000x40")],
        firing: &[("stoker_state_disk_free_bytes", "50000x40")],
        silent: &[&[("stoker_state_disk_free_bytes", "100000x40")], &[("stoker_state_disk_free_bytes", "50000x20 900000x20")]],
        labels: &[("severity", "warning")],
        summary: "5% of the disk of Stoker's state directory is free",
    },
    Case {
        alert: "StokerCertificateExpires",
        every: "1m",
        // The tests' time begins with 1970.
        at: "2h",
        common: &[(r#"stoker_certificate_expiry_timestamp_seconds{listener="expander"}"#, "864000x150")],
        firing: &[(r#"stoker_certificate_expiry_timestamp_seconds{listener="provider"}"#, "93600x150")],
        silent: &[
            // Renewed an hour ago.
            &[(r#"stoker_certificate_expiry_timestamp_seconds{listener="provider"}"#, "93600x50 9360000x100")],
            &[],
        ],
        labels: &[("listener", "provider"), ("severity", "warning")],
        summary: "The certificate of Stoker's provider listener expires in 1d 0h 0m 0s",
    },
    Case {
        alert: "StokerReadingsStopped",
        every: "1m",
        at: "30m",
        common: &[("stoker_probe_nodes", "9x40")],
        firing: &[("stoker_probe_silent_nodes", "2x40")],
        silent: &[&[("stoker_probe_silent_nodes", "0x40")], &[("stoker_probe_silent_nodes", "2x25 0x10")]],
        labels: &[("severity", "warning")],
        summary: "Nodes whose readings have not reached Stoker for 10m: 2",
    },
];
