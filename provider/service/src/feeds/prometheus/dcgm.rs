//! What a DCGM exporter calls the levels of a GPU, in which units, and how they are asked for.
//!
//! Names by dcgm-exporter 4.8 (`etc/default-counters.csv`) and DCGM's field list, which has renamed many: both are asked for, and of one
//! field they have the same unit. A value that DCGM does not have is left out by the exporter, so what is absent is unknown.

use jiff::SignedDuration;
use stoker_core::policy::Prometheus;
use stoker_proto::limits;

use super::labels::{IDENTITY, INSTANCE, UUIDS};

/// One level of a GPU or MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is named as DCGM names it")]
pub enum Level {
    Utilization,
    EngineActivity,
    SmActivity,
    Bandwidth,
    MemoryUsed,
    MemoryFree,
    MemoryReserved,
    Power,
    PowerLimit,
    PowerLimitAsked,
    Temperature,
    SmClock,
    MemoryClock,
    ClockLimits,
    Energy,
    Xid,
    RowsCorrectable,
    RowsUncorrectable,
    RowsPending,
    RowsFailed,
    EccUncorrected,
    EccCorrected,
    EccUncorrectedEver,
    RetiredPending,
    Recovery,
    PcieReplays,
    PcieGeneration,
    PcieWidth,
    PcieMaxGeneration,
    PcieMaxWidth,
    MigMode,
    Persistence,
    Encoder,
    Decoder,
}

impl Level {
    /// How many there are.
    pub(super) const COUNT: usize = Self::Decoder as usize + 1;
}

/// How a level is asked for and read.
pub(super) struct Field {
    /// The level.
    pub(super) level: Level,
    /// What exporters call it, older names first, without `DCGM_FI_`.
    names: &'static [&'static str],
    /// What one of the exporter's units is in ours: thousandths, bytes, milliwatts.
    scale: f64,
    /// Most that hardware can have, in the exporter's unit; DCGM's blank values lie far beyond.
    most: f64,
}

/// The largest whole number that a float holds exactly: a bound for counters.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// A ratio, with what rounding adds.
const WHOLE: f64 = 1.01;
const MIB: f64 = 1_048_576.0;
/// In the exporter's units: MiB, watts.
const MEMORY: f64 = exact(limits::MEMORY >> 20);
const POWER: f64 = exact(limits::POWER_MW / 1_000);
const TEMPERATURE: f64 = exact(limits::TEMPERATURE_C.end().unsigned_abs() as u64);
const CLOCK: f64 = exact(limits::CLOCK_MHZ as u64);
const GENERATION: f64 = exact(limits::PCIE_GENERATION as u64);
const LANES: f64 = exact(limits::PCIE_LANES as u64);

#[expect(clippy::cast_precision_loss, reason = "far below what a float holds exactly")]
const fn exact(limit: u64) -> f64 {
    limit as f64
}

const fn field(level: Level, names: &'static [&'static str], scale: f64, most: f64) -> Field {
    Field { level, names, scale, most }
}

/// Every level that is asked for.
pub(super) const FIELDS: &[Field] = &[
    field(Level::Utilization, &["DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO"], 10.0, 100.0),
    field(Level::EngineActivity, &["PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO"], 1000.0, WHOLE),
    field(Level::SmActivity, &["PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO"], 1000.0, WHOLE),
    field(Level::Bandwidth, &["PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO"], 1000.0, WHOLE),
    field(Level::MemoryUsed, &["DEV_FB_USED"], MIB, MEMORY),
    field(Level::MemoryFree, &["DEV_FB_FREE"], MIB, MEMORY),
    field(Level::MemoryReserved, &["DEV_FB_RESERVED"], MIB, MEMORY),
    field(Level::Power, &["DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS"], 1000.0, POWER),
    field(Level::PowerLimit, &["DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"], 1000.0, POWER),
    field(Level::PowerLimitAsked, &["DEV_POWER_MGMT_LIMIT", "DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS"], 1000.0, POWER),
    field(Level::Temperature, &["DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS"], 1.0, TEMPERATURE),
    field(Level::SmClock, &["DEV_SM_CLOCK"], 1.0, CLOCK),
    field(Level::MemoryClock, &["DEV_MEM_CLOCK"], 1.0, CLOCK),
    field(Level::ClockLimits, &["DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS"], 1.0, EXACT),
    field(Level::Energy, &["DEV_TOTAL_ENERGY_CONSUMPTION"], 1.0, EXACT),
    field(Level::Xid, &["DEV_XID_ERRORS", "DEV_XID_ERROR"], 1.0, 100_000.0),
    field(Level::RowsCorrectable, &["DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_CORRECTABLE_TOTAL"], 1.0, 1e6),
    field(Level::RowsUncorrectable, &["DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"], 1.0, 1e6),
    field(Level::RowsPending, &["DEV_ROW_REMAP_PENDING"], 1.0, 1e6),
    field(Level::RowsFailed, &["DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED"], 1.0, 1e6),
    field(Level::EccUncorrected, &["DEV_ECC_DBE_VOL_TOTAL"], 1.0, EXACT),
    field(Level::EccCorrected, &["DEV_ECC_SBE_VOL_TOTAL"], 1.0, EXACT),
    field(Level::EccUncorrectedEver, &["DEV_ECC_DBE_AGG_TOTAL"], 1.0, EXACT),
    field(Level::RetiredPending, &["DEV_RETIRED_PENDING", "DEV_PAGE_RETIRED_PENDING"], 1.0, 1e6),
    field(Level::Recovery, &["DEV_GET_GPU_RECOVERY_ACTION", "DEV_GPU_RECOVERY_ACTION"], 1.0, 4.0),
    field(Level::PcieReplays, &["DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL"], 1.0, EXACT),
    field(Level::PcieGeneration, &["DEV_PCIE_LINK_GEN"], 1.0, GENERATION),
    field(Level::PcieWidth, &["DEV_PCIE_LINK_WIDTH"], 1.0, LANES),
    field(Level::PcieMaxGeneration, &["DEV_PCIE_MAX_LINK_GEN"], 1.0, GENERATION),
    field(Level::PcieMaxWidth, &["DEV_PCIE_MAX_LINK_WIDTH"], 1.0, LANES),
    field(Level::MigMode, &["DEV_MIG_MODE"], 1.0, 1.0),
    field(Level::Persistence, &["DEV_PERSISTENCE_MODE", "DEV_GPU_PERSISTENCE_MODE"], 1.0, 1.0),
    field(Level::Encoder, &["DEV_ENC_UTIL"], 10.0, 100.0),
    field(Level::Decoder, &["DEV_DEC_UTIL"], 10.0, 100.0),
];

impl Field {
    /// The instant query for all GPUs. Modes that share a GPU copy its levels to each pod or process: the highest counts, never the sum,
    /// and of free memory the lowest. A sample older than `stale_after` is not in it.
    pub(super) fn query(&self, rules: &Prometheus) -> String {
        let pick = if self.level == Level::MemoryFree { "min" } else { "max" };
        let by = [UUIDS[0], UUIDS[1], INSTANCE].join(", ");
        let samples = fresh(&selector(self.names, rules), rules.stale_after);
        format!("{pick} by ({by}) (last_over_time({samples}))")
    }

    /// A value in our unit; `None` where no hardware can have it.
    pub(super) fn read(&self, value: f64) -> Option<u64> {
        // Comparing refuses what is not a number, too.
        if !(0.0..=self.most).contains(&value) {
            return None;
        }
        let most = if self.most.to_bits() == WHOLE.to_bits() { self.scale } else { f64::INFINITY };
        let scaled = (value * self.scale).round().min(most);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between zero and 2^64, as every bound × scale is"
        )]
        Some(scaled as u64)
    }
}

/// A query for a level by whichever of its names an exporter uses; `matchers` in braces, or nothing. Of one exporter that has both, the older
/// one counts.
pub fn either(level: Level, matchers: &str) -> String {
    let names = FIELDS.iter().filter(|field| field.level == level).flat_map(|field| field.names);
    let all: Vec<String> = names.map(|name| format!("DCGM_FI_{name}{matchers}")).collect();
    if let [one] = all.as_slice() { one.clone() } else { format!("({})", all.join(" or ")) }
}

/// The metrics by which a GPU is known to be told of, the usual ones first; any one will do.
const SIGNS_OF_LIFE: [&str; 5] =
    ["DEV_FB_USED", "DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", "PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO"];

/// The query for when each GPU was last sampled, with all that tells which it is and where.
pub(super) fn stamps(rules: &Prometheus) -> String {
    let mut by: Vec<&str> = rules.node_labels.iter().map(String::as_str).collect();
    by.extend(IDENTITY);
    let by = by.join(", ");
    // `timestamp` drops names, so that two of them at once would clash.
    let each = SIGNS_OF_LIFE.map(|name| format!("max by ({by}) (timestamp({}))", selector(&[name], rules)));
    each.join(" or ")
}

/// The query for how many errors of each XID were counted of late, which an exporter may be told to tell.
pub(super) fn xid_counts(rules: &Prometheus) -> String {
    let by = [UUIDS[0], UUIDS[1], "xid"].join(", ");
    let selector = format!("DCGM_EXP_XID_ERRORS_COUNT{}", braces(&matchers(rules)));
    format!("max by ({by}) (last_over_time({}))", fresh(&selector, rules.stale_after))
}

/// The series of any of these names.
fn selector(names: &[&str], rules: &Prometheus) -> String {
    let mut of = matchers(rules);
    if let [name] = names {
        return format!("DCGM_FI_{name}{}", braces(&of));
    }
    let names: Vec<_> = names.iter().map(|name| format!("DCGM_FI_{name}")).collect();
    of.insert(0, format!("__name__=~\"{}\"", names.join("|")));
    braces(&of)
}

pub(super) fn matchers(rules: &Prometheus) -> Vec<String> {
    rules.match_labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect()
}

pub(super) fn braces(matchers: &[String]) -> String {
    if matchers.is_empty() { String::new() } else { format!("{{{}}}", matchers.join(",")) }
}

/// A text between the quotes of PromQL.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The samples of a selector that are young enough.
fn fresh(selector: &str, stale_after: SignedDuration) -> String {
    format!("{selector}[{}s]", stale_after.as_secs())
}
