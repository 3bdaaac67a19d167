//! `stoker advise --ranked`: every measure that would save, dearest first, each with its evidence, its risk and the change of the policy.

mod spent;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path as FilePath;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use similar::TextDiff;
use stoker_advice::spend::{Life, WithoutGpu};
use stoker_advice::workload::{Change, Layout, MONTH_HOURS, Suggestion, WorkloadAdvice};
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::{Percent, UsdMicros, UsdPerHour};
use stoker_core::limits::commitment::{Proposal, Scope, Term};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::{Path, Policy, Pool, RawPolicy, Segment};
use stoker_service::policy_file;
use stoker_service::print::{paragraph, table};
use stoker_service::yaml::{self, Edit};

use super::words::{arithmetic, shown};
use crate::cli::exit::CliError;
use crate::cli::idle::IdleRow;
use crate::cli::out::Money;
use crate::cli::report::{LastDays, percent};

/// Measures that save less than so much a month are left out: nobody changes a policy for a coffee.
const LEAST: UsdMicros = UsdMicros(5_000_000);

/// What measures are found from.
pub(super) struct Found<'a> {
    pub(super) policy: &'a Policy,
    pub(super) prices: &'a PriceBook,
    pub(super) workloads: &'a [WorkloadAdvice],
    pub(super) idle: &'a [IdleRow],
    pub(super) proposals: &'a [Proposal],
    /// What was spent.
    pub(super) spent: LastDays,
    /// What became of nodes in that time.
    pub(super) lives: &'a [Life],
    /// What free nodes cost on which pods without GPU ran.
    pub(super) without_gpu: &'a BTreeMap<PoolName, WithoutGpu>,
    pub(super) now: Timestamp,
}

/// The measures, dearest first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ranked {
    pub(super) at: Timestamp,
    pub(super) measures: Vec<Measure>,
    /// Hours of which it is known what nodes did, and workloads of which enough is known.
    known_hours: i64,
    known_workloads: usize,
}

/// Something that would save.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measure {
    pub(super) saved_per_month: Money,
    /// Whether that is the most that it can save.
    pub(super) is_upper_bound: bool,
    /// What it is, in a word or two.
    pub(super) what: &'static str,
    /// Which workload, pool or commitment it is about.
    pub(super) of: String,
    pub(super) evidence: String,
    pub(super) risk: String,
    /// What the policy would say; empty where people act.
    #[serde(rename = "policy", serialize_with = "as_told")]
    pub(super) edits: Vec<Edit>,
    /// What people have to do.
    pub(super) by_hand: Option<String>,
}

impl Ranked {
    pub(super) fn of(found: &Found<'_>) -> Self {
        let mut measures: Vec<Measure> = found.workloads.iter().filter_map(|one| sized(found, one)).collect();
        measures.extend(found.workloads.iter().filter_map(|one| quantized(found, one)));
        measures.extend(reserved(found));
        measures.extend(spent::measures(found));
        measures.extend(found.idle.iter().filter_map(idle));
        measures.retain(|measure| measure.saved_per_month.micro_usd >= LEAST.0);
        measures.sort_by(|a, b| (b.saved_per_month.micro_usd, &a.of).cmp(&(a.saved_per_month.micro_usd, &b.of)));
        Self { at: found.now, measures, known_hours: found.spent.known_hours, known_workloads: found.workloads.len() }
    }

    /// What is known, where that saves nothing.
    fn because(&self) -> String {
        let hours = match self.known_hours {
            known if known < spent::LEAST_HOURS => {
                format!("what nodes did is known of {known} hours, and a week is needed")
            }
            known => format!("of {known} hours in which it is known what nodes did, nothing was spent in vain"),
        };
        let workloads = match self.known_workloads {
            0 => "no workload has a week of GPU readings".to_owned(),
            1 => "the one workload with a week of GPU readings fits what it has".to_owned(),
            known => format!("the {known} workloads with a week of GPU readings fit what they have"),
        };
        format!("{hours}; {workloads}")
    }

    pub(super) fn table(&self) -> String {
        if self.measures.is_empty() {
            return format!("Nothing is known to save $5 a month or more.\n{}", paragraph("because", &self.because()));
        }
        let rows = self.measures.iter().zip(1..).map(|(of, rank)| {
            let most = if of.is_upper_bound { "at most " } else { "" };
            let saved = UsdMicros(of.saved_per_month.micro_usd);
            vec![format!("{rank}"), format!("{most}{saved}"), of.what.to_owned(), of.of.clone()]
        });
        let mut text = table(&["RANK", "SAVES/MONTH", "MEASURE", "OF"], &["RANK", "SAVES/MONTH"], rows.collect());
        for (of, rank) in self.measures.iter().zip(1..) {
            let _ = write!(text, "\n{rank}  {} of {}\n", of.what, of.of);
            text.push_str(&paragraph("   evidence:", &of.evidence));
            text.push_str(&paragraph("   risk:", &of.risk));
            for change in of.edits.iter().map(told) {
                text.push_str(&paragraph("   policy:", &change));
            }
            if let Some(what) = &of.by_hand {
                text.push_str(&paragraph("   to do:", what));
            }
        }
        text.push('\n');
        text.push_str(&paragraph(
            "note:",
            "measures overlap: carry one out, and look again. --policy FILE --apply NEW-FILE [--measure RANK] writes the changed policy for \
             review.",
        ));
        text
    }
}

/// Edits as people read them.
fn as_told<S: Serializer>(edits: &[Edit], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(edits.iter().map(told))
}

/// An edit as people read it.
fn told(edit: &Edit) -> String {
    match edit {
        Edit::Set(path, value) => format!("{path}: {}", yaml::flow(value)),
        Edit::Add(path, value) => format!("{path}: add {}", yaml::flow(value)),
    }
}

/// A pool, and its path in the policy's file; `None` where there is none of that name.
fn pool<'a>(policy: &'a Policy, name: &PoolName) -> Option<(&'a Pool, Path)> {
    let (index, pool) = policy.pools.iter().enumerate().find(|(_, pool)| pool.name == *name)?;
    Some((pool, Path::root().key("pools").index(index)))
}

/// A cheaper GPU, or a part of one, for a workload.
fn sized(found: &Found<'_>, advice: &WorkloadAdvice) -> Option<Measure> {
    let one = advice.cheapest.as_ref().ok()?;
    let (pool, path) = pool(found.policy, &advice.pool)?;
    // What the policy allows already, pods do not get where dearer types are free: isolation keeps them off those.
    let isolates = one.changes.is_empty() && one.layout == Layout::Whole && pool.isolation.is_none();
    let (what, risk) = match one.layout {
        Layout::Whole if isolates => (
            "isolation",
            "pods wait for a node of their own class, though a dearer one may stand free; what it needed on no day that was \
              read, it may not get",
        ),
        Layout::Whole => ("cheaper GPU", "what it needed on no day that was read, it may not get"),
        Layout::Mig(..) => ("MIG", "a fault of the GPU ends every pod on it, and other profiles need an empty node"),
        Layout::TimeSlicing(_) => {
            ("time-slicing", "pods that share a GPU share its memory unprotected, and wait for each other's turns")
        }
    };
    let (mut edits, rest) = changes_of(pool, &path, one);
    let by_hand = match () {
        () if isolates => {
            Some("label its namespace stoker.dev/isolation=enabled, so that its pods get their tolerations".to_owned())
        }
        () if one.changes.is_empty() => Some("the policy allows it already: let its pods ask for it".to_owned()),
        () => rest,
    };
    if isolates {
        edits.push(Edit::Set(path.key("isolation"), json!({ "maxCostRatio": 1.3 })));
    }
    let why = arithmetic(advice, found.policy.advise).into_iter().next().unwrap_or_default();
    Some(Measure {
        saved_per_month: one.saved.into(),
        is_upper_bound: false,
        what,
        of: format!("{} in {}", advice.owner, advice.pool),
        evidence: format!("{why}. {}: {} instead of {} a month", shown(one), one.per_month, advice.now.per_month),
        risk: risk.to_owned(),
        edits,
        by_hand,
    })
}

/// A GPU with half of the memory, for a workload that serves.
fn quantized(found: &Found<'_>, advice: &WorkloadAdvice) -> Option<Measure> {
    let one = advice.quantized.as_ref()?;
    let (pool, path) = pool(found.policy, &advice.pool)?;
    let (edits, rest) = changes_of(pool, &path, one);
    let first = "first serve its weights in 8 bits: stoker fit --precision tells what a model needs then".to_owned();
    Some(Measure {
        saved_per_month: one.saved.into(),
        is_upper_bound: true,
        what: "quantization",
        of: format!("{} in {}", advice.owner, advice.pool),
        evidence: format!(
            "in half of the memory that it needs, {} would do: {} instead of {} a month",
            shown(one),
            one.per_month,
            advice.now.per_month
        ),
        risk: "answers are less exact: measure them first. Every pod of the pool may get that GPU. What has weights of 8 bits already saves \
               nothing, and caches of tokens shrink only where they are quantized too"
            .to_owned(),
        by_hand: Some(rest.map_or(first.clone(), |rest| format!("{first}; then {rest}"))),
        edits,
    })
}

/// The changes of the policy that a suggestion asks for; where not all of them can be written, none, and what people write.
fn changes_of(pool: &Pool, path: &Path, one: &Suggestion) -> (Vec<Edit>, Option<String>) {
    let edits: Vec<Edit> = one.changes.iter().filter_map(|change| edit_of(pool, path, change)).collect();
    if edits.len() == one.changes.len() {
        return (edits, None);
    }
    let changes: Vec<String> = one.changes.iter().map(ToString::to_string).collect();
    (Vec::new(), Some(format!("write into the pool: {}", changes.join(", "))))
}

/// What a change is in the policy's file; `None` of one that is left to people.
fn edit_of(pool: &Pool, path: &Path, change: &Change) -> Option<Edit> {
    let gpu = path.key("gpu");
    Some(match change {
        Change::Model(model) => Edit::Add(gpu.key("models"), json!(model.as_str())),
        Change::Count(gpus) => {
            let counts: Vec<u32> = pool.gpu_counts.iter().copied().chain([*gpus]).collect();
            Edit::Set(gpu.key("count"), json!(counts))
        }
        Change::InstanceType(name) => Edit::Add(path.key("instanceTypes"), json!(name.as_str())),
        Change::LeastMemory(gib) => Edit::Set(gpu.key("minMemoryGiB"), json!(gib)),
        Change::LeastNodeMemory(gib) => Edit::Set(gpu.key("minMemoryPerNodeGiB"), json!(gib)),
        Change::Share(Layout::Mig(profile, _)) => Edit::Set(path.key("sharing"), json!({ "mig": format!("all-{profile}") })),
        Change::Share(Layout::TimeSlicing(n)) => Edit::Set(path.key("sharing"), json!({ "timeSlicing": n })),
        Change::Share(Layout::Whole) => return None,
    })
}

/// Of what covers the same use, the commitment that saves most.
fn reserved(found: &Found<'_>) -> Vec<Measure> {
    let mut best: BTreeMap<(&str, &Scope), &Proposal> = BTreeMap::new();
    for proposal in found.proposals.iter().filter(|proposal| proposal.advice.commit > 0) {
        let known = best.entry((proposal.cloud.as_str(), &proposal.scope)).or_insert(proposal);
        if proposal.advice.saved > known.advice.saved {
            *known = proposal;
        }
    }
    best.into_values().map(|proposal| commitment(proposal, found.now)).collect()
}

fn commitment(proposal: &Proposal, now: Timestamp) -> Measure {
    let Proposal { cloud, kind, scope, term, source, unit: _, advice } = proposal;
    let month = |rate: UsdPerHour| rate.over_seconds(MONTH_HOURS * 3_600);
    let years = if *term == Term::ThreeYears { "three years" } else { "a year" };
    let mut raw = json!({ "cloud": cloud.as_str(), "kind": kind.as_str(), "usdPerHour": dollars(proposal.rate()) });
    let (what, amount) = match scope {
        Scope::Nodes { region, instance_type } => {
            raw["region"] = json!(region.as_str());
            raw["instanceType"] = json!(instance_type.as_str());
            raw["nodes"] = json!(advice.commit);
            (format!("{instance_type} in {region}"), format!("{} of {instance_type}", advice.commit))
        }
        Scope::Gpus { region, model, memory } => {
            raw["region"] = json!(region.as_str());
            raw["model"] = json!(model.as_str());
            raw["memoryGiB"] = json!(memory.0 / 1_024);
            raw["gpus"] = json!(advice.commit);
            (format!("{model} in {region}"), format!("{} GPUs of {model}", advice.commit))
        }
        Scope::Family { region, family } => (format!("{family} in {region}"), format!("{} an hour", proposal.rate())),
        Scope::Cloud => (cloud.to_string(), format!("{} an hour", proposal.rate())),
    };
    // With its day: the same may be bought again.
    let name = format!("{}-{}-{}-{}", kind.as_str(), what.replace(' ', "-"), term.as_str(), now.strftime("%Y-%m-%d"));
    raw["name"] = json!(name);
    // What was spent before it was bought, it did not pay.
    raw["from"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let halved = advice.if_use_falls.iter().find(|fall| fall.by == Percent(50));
    let halved = halved.map_or_else(String::new, |fall| format!("; if use halves it saves {} a month", month(fall.saved)));
    let is_counted = matches!(scope, Scope::Nodes { .. } | Scope::Gpus { .. });
    Measure {
        saved_per_month: month(advice.saved).into(),
        is_upper_bound: false,
        what: "reserve",
        of: format!("{cloud} {} for {years}, {what}", kind.as_str()),
        evidence: format!(
            "{amount} would have been used to {}, and pays from {} on ({source})",
            percent(advice.utilization.0.into()),
            percent(advice.break_even.0.into())
        ),
        risk: format!("it is paid for {years}, used or not{halved}"),
        by_hand: Some(format!("buy it; then the policy may count on it{}", if is_counted { "" } else { ": stoker commit" })),
        edits: if is_counted { vec![Edit::Add(Path::root().key("commitments"), raw)] } else { Vec::new() },
    }
}

/// Micro-dollars as a number of dollars, exactly.
fn dollars(rate: UsdPerHour) -> Value {
    let text = format!("{}.{:06}", rate.0 / 1_000_000, rate.0.unsigned_abs() % 1_000_000);
    serde_json::from_str(text.trim_end_matches('0').trim_end_matches('.')).unwrap_or(Value::Null)
}

/// Pods that hold GPUs and do nothing with them, such as forgotten notebooks.
fn idle(row: &IdleRow) -> Option<Measure> {
    let owner = row.owner()?;
    Some(Measure {
        saved_per_month: row.per_hour().over_seconds(MONTH_HOURS * 3_600).into(),
        is_upper_bound: true,
        what: "idle pods",
        of: owner.to_owned(),
        evidence: row.evidence(),
        risk: "what lies in their memory is lost when they end: ask first".to_owned(),
        by_hand: Some("ask the owner, and end what nobody needs".to_owned()),
        edits: Vec::new(),
    })
}

/// A policy with edits, as values; `None` where they lead nowhere.
fn meant(policy: &RawPolicy, edits: &[Edit]) -> Option<RawPolicy> {
    let mut whole = serde_json::to_value(policy).ok()?;
    for edit in edits {
        let (Edit::Set(path, value) | Edit::Add(path, value)) = edit;
        let mut at = &mut whole;
        for segment in path.segments() {
            at = match segment {
                Segment::Key(key) => {
                    if at.is_null() {
                        *at = json!({});
                    }
                    at.as_object_mut()?.entry(key.as_str()).or_insert(Value::Null)
                }
                Segment::Index(index) => at.get_mut(index)?,
            };
        }
        match (edit, &mut *at) {
            (Edit::Add(..), Value::Array(list)) => list.push(value.clone()),
            (Edit::Add(..), _) => *at = Value::Array(vec![value.clone()]),
            (Edit::Set(..), _) => *at = value.clone(),
        }
    }
    serde_json::from_value(whole).ok()
}

/// Writes a policy with a measure into a file that is not there yet, and tells the difference. Nothing else changes.
pub(super) fn apply(
    measure: &Measure,
    from: &FilePath,
    text: &str,
    to: &FilePath,
    prices: &PriceBook,
) -> Result<String, CliError> {
    let cannot = |why: &str| {
        let changes = measure.edits.iter().map(told).collect::<Vec<_>>().join("; ");
        CliError::Usage(format!("--apply: {why}: write by hand into {}: {changes}", from.display()))
    };
    if measure.edits.is_empty() {
        let what = measure.by_hand.as_deref().unwrap_or("nothing");
        return Err(CliError::Usage(format!("--apply: {} of {} changes no policy: {what}", measure.what, measure.of)));
    }
    let edited = measure.edits.iter().try_fold(text.to_owned(), |text, edit| yaml::edit(&text, edit));
    let edited = edited.ok_or_else(|| cannot("the file has a form that is not edited"))?;
    // What was written is what was meant, and a policy.
    let name = to.display().to_string();
    policy_file::parse(&name, &edited, Some(prices)).map_err(|faults| CliError::Usage(format!("--apply: {faults}")))?;
    let read = |text: &str| yaml::load::<RawPolicy>(&name, text).ok().map(|read| read.value);
    if read(&edited).is_none() || read(&edited) != read(text).and_then(|before| meant(&before, &measure.edits)) {
        return Err(cannot("the file has a form that is not edited"));
    }
    let failed = |source: std::io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => CliError::Usage(format!("--apply: {name} is there already: name another file")),
        _ => CliError::Failed { doing: format!("--apply: {name}"), source: source.into() },
    };
    fs::File::create_new(to).and_then(|mut file| file.write_all(edited.as_bytes())).map_err(failed)?;
    let diff = TextDiff::from_lines(text, &edited).unified_diff().header(&from.display().to_string(), &name).to_string();
    Ok(format!(
        "{diff}\nwritten to {name}: look at it with `stoker plan --policy {name}` and `stoker simulate --policy {name}`\n"
    ))
}

#[cfg(test)]
mod tests {
    use stoker_advice::fit::Power;
    use stoker_advice::rollup::Owner;
    use stoker_advice::workload::{Class, Measure as By, Now, Stay, Used};
    use stoker_core::base::ids::GpuModel;
    use stoker_core::base::units::Milli;
    use stoker_core::market::offer::CapacityType;

    use super::spent::tests::{market, policy};
    use super::*;

    fn of_half_the_memory(changes: Vec<Change>) -> WorkloadAdvice {
        let power = Power { megaflops: 1, mb_s: 1, memory: 1 };
        WorkloadAdvice {
            owner: Owner { namespace: "ml".into(), name: "chat".into() },
            pool: PoolName::new("pool").unwrap(),
            known_days: 8,
            levels: Used { utilization: None, memory: None, sm: None, bandwidth: None, by: By::Utilization },
            class: Class::MemoryBound,
            now: Now {
                instance_types: Vec::new(),
                capacity_type: CapacityType::OnDemand,
                gpus: 1,
                pods: Milli(1_000),
                pod_seconds: 1,
                hours: 192,
                per_pod: UsdPerHour(3_430_000),
                per_month: UsdMicros(2_503_900_000),
            },
            cheapest: Err(Stay::NothingCheaper),
            as_it_stands: None,
            quantized: Some(Suggestion {
                market: market("us-east-1"),
                gpus: 1,
                layout: Layout::Whole,
                node: UsdPerHour(804_800),
                pods_per_node: 1,
                per_pod: UsdPerHour(804_800),
                per_month: UsdMicros(587_504_000),
                saved: UsdMicros(1_916_396_000),
                changes,
                need: power,
                has: power,
            }),
            checkpoints: None,
            held: stoker_advice::workload::Held::default(),
        }
    }

    /// The policy can be changed, and people serve in 8 bits before they do.
    #[test]
    fn quantization_comes_before_its_change_of_the_policy() {
        let (policy, prices) = (policy(&json!({ "workload": "inference" })), PriceBook::new());
        let measured = |changes| {
            let workloads = [of_half_the_memory(changes)];
            let found = Found {
                policy: &policy,
                prices: &prices,
                workloads: &workloads,
                idle: &[],
                proposals: &[],
                spent: LastDays { days: Vec::new(), known_hours: 0, since: Timestamp::UNIX_EPOCH },
                lives: &[],
                without_gpu: &BTreeMap::new(),
                now: Timestamp::UNIX_EPOCH,
            };
            Ranked::of(&found).measures.remove(0)
        };
        let one = measured(vec![Change::Model(GpuModel::new("T4").unwrap())]);
        assert_eq!((one.what, one.of.as_str(), one.is_upper_bound), ("quantization", "ml/chat in pool", true));
        assert_eq!(
            (one.saved_per_month.micro_usd, one.edits.iter().map(told).collect::<Vec<_>>().join("; ")),
            (1_916_396_000, "pools[0].gpu.models: add T4".into())
        );
        assert!(one.evidence.ends_with("would do: $587.50 instead of $2503.90 a month"), "{}", one.evidence);
        assert!(one.by_hand.as_ref().unwrap().starts_with("first serve its weights in 8 bits"), "{one:?}");
        // What cannot be written is told.
        let whole = measured(vec![Change::Share(Layout::Whole)]);
        assert!(whole.edits.is_empty() && whole.by_hand.as_ref().unwrap().ends_with("write into the pool: sharing: remove it"));
    }
}
