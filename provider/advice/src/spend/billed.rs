//! Comparison of what Stoker calculated with what a cloud billed, by machine, with the reasons of the difference.
//!
//! The bill comes in as [`Charge`]s, one at a time, and only sums of them are kept. For each machine, and in all, what was calculated and
//! the parts of the difference add up to what was billed, to the micro-dollar.

mod exact;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use stoker_core::base::ids::PoolName;
use stoker_core::base::units::UsdMicros;
use stoker_core::market::offer::CapacityType;

use super::{DayRow, Figures, PARTS, Use};
use exact::divided;

pub use exact::{BadNumber, Exact};

/// Charges of machines of which it is remembered that they were counted, so that none counts twice: 75 MB.
pub const MOST_REMEMBERED: usize = 7_000_000;

/// Services that are kept apart. A cloud has some hundreds.
const MOST_SERVICES: usize = 1_000;

/// What a charge is, as FOCUS's `ChargeCategory` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeCategory {
    /// What was used.
    Usage,
    /// What was bought ahead or by subscription.
    Purchase,
    /// A tax.
    Tax,
    /// What the cloud gives back.
    Credit,
    /// Any other correction.
    Adjustment,
}

impl ChargeCategory {
    /// The category of FOCUS's word; `None` where FOCUS has no such word.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "Usage" => Self::Usage,
            "Purchase" => Self::Purchase,
            "Tax" => Self::Tax,
            "Credit" => Self::Credit,
            "Adjustment" => Self::Adjustment,
            _ => return None,
        })
    }
}

/// A row of a bill. Texts are empty where the bill has none.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    /// What it is.
    pub category: ChargeCategory,
    /// Whether it corrects an earlier bill (`ChargeClass`).
    pub is_correction: bool,
    /// `ResourceId`.
    pub resource_id: &'a str,
    /// `ResourceName`.
    pub resource_name: &'a str,
    /// `ServiceName`.
    pub service: &'a str,
    /// `ServiceCategory`.
    pub service_category: &'a str,
    /// AWS's `x_ServiceCode`.
    pub service_code: &'a str,
    /// AWS's `x_UsageType`.
    pub usage_type: &'a str,
    /// Its charge period, in Unix seconds; the end is not included.
    pub time: (i64, i64),
    /// `BilledCost`: what the invoice of that time has.
    pub billed: Exact,
    /// `EffectiveCost`: with what was paid ahead spread over its use.
    pub effective: Exact,
    /// `ListCost`; `None` where the cell is empty.
    pub list: Option<Exact>,
    /// `ContractedCost`, likewise.
    pub contracted: Option<Exact>,
    /// `ConsumedQuantity`, likewise.
    pub quantity: Option<Exact>,
    /// `ConsumedUnit`.
    pub unit: &'a str,
    /// Whether it is for a commitment or reservation that nothing used.
    pub is_unused: bool,
}

/// Why what was billed differs from what was calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The bill has more or fewer hours of the machine, at the calculated price.
    Hours,
    /// The published price is another.
    ListPrice,
    /// Negotiated discounts: contracted against list, on the bill and as calculated.
    Discount,
    /// The price without commitments is another, as of spot; or the bill does not tell what of it is list price and what is discount.
    Price,
    /// What commitments pay: effective against contracted, on the bill and as calculated.
    Commitments,
    /// The bill has no usage of that machine.
    NotBilled,
    /// Commitments that nothing used.
    UnusedCommitments,
    /// Other charges of a machine of Stoker's, as for data transfer.
    OtherCharges,
    /// Machines that Stoker does not know.
    OtherMachines,
    /// Disks, load balancers and all else.
    OtherResources,
    /// Purchases, as of commitments and subscriptions.
    Purchases,
    /// Credits.
    Credits,
    /// Taxes.
    Taxes,
    /// Corrections and adjustments.
    Corrections,
    /// What rounding to micro-dollars leaves.
    Rounding,
}

impl Part {
    /// Every part, in the order of tables.
    pub const ALL: [Self; 15] = [
        Self::Hours,
        Self::ListPrice,
        Self::Discount,
        Self::Price,
        Self::Commitments,
        Self::NotBilled,
        Self::UnusedCommitments,
        Self::OtherCharges,
        Self::OtherMachines,
        Self::OtherResources,
        Self::Purchases,
        Self::Credits,
        Self::Taxes,
        Self::Corrections,
        Self::Rounding,
    ];

    /// The word used in JSON and in the columns of CSV.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Hours => "hours",
            Self::ListPrice => "listPrice",
            Self::Discount => "discounts",
            Self::Price => "price",
            Self::Commitments => "commitments",
            Self::NotBilled => "notBilled",
            Self::UnusedCommitments => "unusedCommitments",
            Self::OtherCharges => "otherCharges",
            Self::OtherMachines => "otherMachines",
            Self::OtherResources => "otherResources",
            Self::Purchases => "purchases",
            Self::Credits => "credits",
            Self::Taxes => "taxes",
            Self::Corrections => "corrections",
            Self::Rounding => "rounding",
        }
    }
}

/// What was calculated, what was billed, and why they differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// What Stoker calculated, with commitments.
    pub calculated: UsdMicros,
    /// The parts of the difference. They and what was calculated add up to what was billed.
    pub parts: BTreeMap<Part, UsdMicros>,
    /// What was billed, with what was paid ahead spread over its use (`EffectiveCost`).
    pub billed: UsdMicros,
    /// What the invoice of that time has (`BilledCost`).
    pub invoiced: UsdMicros,
}

impl Line {
    /// Billed less calculated.
    pub fn difference(&self) -> UsdMicros {
        UsdMicros(self.billed.0.saturating_sub(self.calculated.0))
    }

    fn part(&mut self, part: Part, amount: i128) {
        if amount != 0 {
            let amount = i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX });
            let sum = self.parts.entry(part).or_default();
            *sum = sum.plus(UsdMicros(amount));
        }
    }

    /// Takes the exact sums for its own, and names what rounding leaves.
    fn closed(mut self, effective: Exact, billed: Exact) -> Self {
        (self.billed, self.invoiced) = (effective.usd(), billed.usd());
        let explained: i128 = self.parts.values().map(|part| i128::from(part.0)).sum();
        self.part(Part::Rounding, micros(self.billed) - micros(self.calculated) - explained);
        self.parts.retain(|_, amount| amount.0 != 0);
        self
    }
}

/// How a machine stands in the bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its provider ID. Of machines that the bill does not tell apart, as those of a scale set, the ID of what it has.
    pub id: String,
    /// Its pool.
    pub pool: PoolName,
    /// So many machines.
    pub machines: usize,
    /// Hours that Stoker counted, in millionths.
    pub hours: i64,
    /// Hours of the bill, likewise; `None` where it counts no hours of machines.
    pub billed_hours: Option<i64>,
    /// Whether the bill has usage of it.
    pub is_billed: bool,
    /// What it comes to.
    pub line: Line,
}

/// Charges that were not compared, or not all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aside {
    /// So many of them.
    pub charges: u64,
    /// What of them was not counted (`EffectiveCost`).
    pub effective: UsdMicros,
}

/// What was calculated against what was billed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// All of it.
    pub total: Line,
    /// The machines, by ID.
    pub machines: Vec<Machine>,
    /// Commitments that nothing used; `None` where neither side has any.
    pub unused: Option<Line>,
    /// All else on the bill, by what it is and by service; the service is empty where it is not told.
    pub others: Vec<(Part, String, Line)>,
    /// Charges of the bill.
    pub charges: u64,
    /// From the first to the last moment that they are for.
    pub reach: Option<(i64, i64)>,
    /// Charges of other times.
    pub outside: Aside,
    /// Charges that reach beyond the time: a part of them was counted, in proportion to time.
    pub cut: Aside,
    /// Charges of machines that repeat another in every cell. They were not counted.
    pub repeated: Aside,
    /// Whether there were more charges of machines than can be remembered, so that some may have counted twice.
    pub is_forgetful: bool,
}

/// Sums of charges.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    charges: u64,
    effective: Exact,
    billed: Exact,
}

impl Sums {
    fn add(&mut self, effective: Exact, billed: Exact) {
        self.charges += 1;
        self.effective = self.effective.plus(effective);
        self.billed = self.billed.plus(billed);
    }

    fn aside(self) -> Aside {
        Aside { charges: self.charges, effective: self.effective.usd() }
    }
}

/// A machine of Stoker's, and what the bill has of it.
#[derive(Debug)]
struct Entry {
    pool: PoolName,
    ids: BTreeSet<String>,
    is_spot: bool,
    /// What was calculated of it.
    figures: Figures,
    /// What the bill has of the machine itself.
    usage: Sums,
    bill_list: Option<Exact>,
    bill_contracted: Option<Exact>,
    bill_hours: Option<Exact>,
    others: BTreeMap<Part, Sums>,
}

/// A comparison in the making.
#[derive(Debug)]
pub struct Comparison {
    time: (i64, i64),
    machines: BTreeMap<String, Entry>,
    /// Names by which a bill may call a machine, and the machine; `None` of a name that two have.
    names: BTreeMap<String, Option<String>>,
    unused: UsdMicros,
    billed_unused: Sums,
    others: BTreeMap<(Part, String), Sums>,
    seen: HashSet<u64>,
    is_forgetful: bool,
    charges: u64,
    reach: Option<(i64, i64)>,
    outside: Sums,
    cut: Sums,
    repeated: Sums,
}

impl Comparison {
    /// Of a time in Unix seconds.
    pub fn new(time: (i64, i64)) -> Self {
        Self {
            time,
            machines: BTreeMap::new(),
            names: BTreeMap::new(),
            unused: UsdMicros(0),
            billed_unused: Sums::default(),
            others: BTreeMap::new(),
            seen: HashSet::new(),
            is_forgetful: false,
            charges: 0,
            reach: None,
            outside: Sums::default(),
            cut: Sums::default(),
            repeated: Sums::default(),
        }
    }

    /// Adds what was calculated of some of that time, as rows in which machines are kept apart. It comes before the bill.
    pub fn calculated<'a>(&mut self, rows: impl IntoIterator<Item = &'a DayRow>) {
        rows.into_iter().for_each(|row| self.know(row));
    }

    fn know(&mut self, row: &DayRow) {
        let Use::Nodes { pool, market, .. } = &row.key.of else {
            self.unused = self.unused.plus(row.figures.effective);
            return;
        };
        let id = row.key.instance.as_ref().map_or("", |(id, _)| id.as_str());
        let key = billed_as(id);
        let entry = self.machines.entry(key.to_owned()).or_insert_with(|| Entry {
            pool: pool.clone(),
            ids: BTreeSet::new(),
            is_spot: market.capacity_type == CapacityType::Spot,
            figures: Figures::default(),
            usage: Sums::default(),
            bill_list: Some(Exact::default()),
            bill_contracted: Some(Exact::default()),
            // Google bills the parts of a machine, each with hours of its own.
            bill_hours: (!key.starts_with("gce://")).then(Exact::default),
            others: BTreeMap::new(),
        });
        if entry.ids.insert(id.to_owned()) && entry.ids.len() == 1 {
            let names = [key, last(key), path(key)].map(str::to_lowercase);
            for name in names.into_iter().filter(|name| !name.is_empty()) {
                let known = self.names.entry(name).or_insert_with(|| Some(key.to_owned()));
                if known.as_deref() != Some(key) {
                    *known = None;
                }
            }
        }
        entry.figures.add(&row.figures);
    }

    /// The machine that a charge is for.
    fn machine(&self, charge: &Charge<'_>) -> Option<&str> {
        let find = |name: &str| self.names.get(name)?.as_deref();
        let id = charge.resource_id.to_lowercase();
        // A disk may have the name of its machine.
        let of_machine = id.rsplit_once('/').filter(|(kind, _)| {
            let kind = kind.rsplit(['/', ':']).next();
            kind == Some("instance") || kind == Some("instances")
        });
        let by_id = find(&id).or_else(|| find(of_machine?.1));
        // Google tells the number of a machine, and its name in a column of its own.
        let by_name = || find(&last(charge.resource_name).to_lowercase()).filter(|key| key.starts_with("gce://"));
        by_id.or_else(|| of_machine.and_then(|_| by_name()))
    }

    /// Counts a charge. `mark` is a number of all of its cells; it is asked of charges of machines alone, of which a second one with the
    /// same number repeats the first.
    pub fn add(&mut self, charge: &Charge<'_>, mark: impl FnOnce() -> u64) {
        self.charges += 1;
        let (begin, end) = charge.time;
        self.reach = Some(self.reach.map_or(charge.time, |(first, last)| (first.min(begin), last.max(end))));
        let key = self.machine(charge).map(str::to_owned);
        if key.is_some() {
            if self.seen.len() >= MOST_REMEMBERED {
                self.is_forgetful = true;
            } else if !self.seen.insert(mark()) {
                self.repeated.add(charge.effective, charge.billed);
                return;
            }
        }
        let (from, until) = (begin.max(self.time.0), end.min(self.time.1));
        // A charge without a length is for a moment.
        let is_within = if begin == end { (self.time.0..self.time.1).contains(&begin) } else { from < until };
        if !is_within {
            self.outside.add(charge.effective, charge.billed);
            return;
        }
        let share = |amount: Exact| if begin == end { amount } else { amount.part(until - from, end - begin) };
        let (effective, billed) = (share(charge.effective), share(charge.billed));
        if (from, until) != charge.time {
            self.cut.add(charge.effective.less(effective), charge.billed.less(billed));
        }
        let part = match charge.category {
            ChargeCategory::Purchase => Part::Purchases,
            ChargeCategory::Tax => Part::Taxes,
            ChargeCategory::Credit => Part::Credits,
            ChargeCategory::Adjustment => Part::Corrections,
            ChargeCategory::Usage if charge.is_correction => Part::Corrections,
            ChargeCategory::Usage => {
                let entry = key.as_ref().and_then(|key| self.machines.get_mut(key));
                let of = of_machine(charge);
                match (entry, of) {
                    (Some(entry), OfMachine::Hours | OfMachine::Parts) => {
                        let sum = |sum: Option<Exact>, of: Option<Exact>| Some(sum?.plus(share(of?)));
                        entry.usage.add(effective, billed);
                        entry.bill_list = sum(entry.bill_list, charge.list);
                        entry.bill_contracted = sum(entry.bill_contracted, charge.contracted);
                        let hours = charge.quantity.filter(|_| of == OfMachine::Hours);
                        entry.bill_hours = sum(entry.bill_hours, hours);
                        return;
                    }
                    (Some(_), OfMachine::Nothing) => Part::OtherCharges,
                    (None, _) if charge.is_unused => {
                        self.billed_unused.add(effective, billed);
                        return;
                    }
                    (None, OfMachine::Hours) => Part::OtherMachines,
                    (None, OfMachine::Parts | OfMachine::Nothing) => Part::OtherResources,
                }
            }
        };
        if let Some(entry) = key.and_then(|key| self.machines.get_mut(&key)) {
            entry.others.entry(part).or_default().add(effective, billed);
            return;
        }
        let key = (part, charge.service.to_owned());
        let is_kept = self.others.len() < MOST_SERVICES || self.others.contains_key(&key);
        self.others.entry(if is_kept { key } else { (part, String::new()) }).or_default().add(effective, billed);
    }

    /// What it comes to.
    pub fn finish(self) -> Compared {
        let mut all = Sums::default();
        let mut total = Line::default();
        let mut take = |line: &Line, effective: Exact, billed: Exact| {
            all.add(effective, billed);
            total.calculated = total.calculated.plus(line.calculated);
            line.parts.iter().for_each(|(part, amount)| total.part(*part, micros(*amount)));
        };
        let mut machines = Vec::with_capacity(self.machines.len());
        for (key, entry) in self.machines {
            let (machine, effective, billed) = entry.machine(key);
            take(&machine.line, effective, billed);
            machines.push(machine);
        }
        let has_unused = self.unused.0 != 0 || self.billed_unused.charges > 0;
        let unused = has_unused.then(|| {
            let Sums { effective, billed, .. } = self.billed_unused;
            let mut line = Line { calculated: self.unused, ..Line::default() };
            line.part(Part::UnusedCommitments, micros(effective.usd()) - micros(self.unused));
            let line = line.closed(effective, billed);
            take(&line, effective, billed);
            line
        });
        let mut others = Vec::with_capacity(self.others.len());
        for ((part, service), Sums { effective, billed, .. }) in self.others {
            let mut line = Line::default();
            line.part(part, micros(effective.usd()));
            let line = line.closed(effective, billed);
            take(&line, effective, billed);
            others.push((part, service, line));
        }
        Compared {
            total: total.closed(all.effective, all.billed),
            machines,
            unused,
            others,
            charges: self.charges,
            reach: self.reach,
            outside: self.outside.aside(),
            cut: self.cut.aside(),
            repeated: self.repeated.aside(),
            is_forgetful: self.is_forgetful,
        }
    }
}

impl Entry {
    /// The machine, and its exact sums.
    fn machine(self, key: String) -> (Machine, Exact, Exact) {
        let (usage, is_billed, hours) = (&self.usage, self.usage.charges > 0, hours_of(self.figures.node_parts));
        let billed_hours = self.bill_hours.filter(|_| is_billed).map(Exact::millionths);
        let mut line = Line { calculated: self.figures.effective, ..Line::default() };
        let [list, contracted, effective] = [self.figures.list, self.figures.contracted, self.figures.effective].map(micros);
        if is_billed {
            let more = i128::from(billed_hours.unwrap_or(hours)) - i128::from(hours);
            let more_hours = |at: i128| divided(at * more, i128::from(hours));
            let bill = micros(usage.effective.usd());
            let known = |sum: Option<Exact>| sum.map(|sum| micros(sum.usd()));
            match (known(self.bill_contracted), known(self.bill_list)) {
                (Some(bill_contracted), Some(bill_list)) if self.figures.unlisted_parts == 0 && !self.is_spot => {
                    let more = more_hours(list);
                    line.part(Part::Hours, more);
                    line.part(Part::ListPrice, bill_list - list - more);
                    line.part(Part::Discount, (bill_contracted - bill_list) - (contracted - list));
                    line.part(Part::Commitments, (bill - bill_contracted) - (effective - contracted));
                }
                (Some(bill_contracted), _) => {
                    let more = more_hours(contracted);
                    line.part(Part::Hours, more);
                    line.part(Part::Price, bill_contracted - contracted - more);
                    line.part(Part::Commitments, (bill - bill_contracted) - (effective - contracted));
                }
                (None, _) => {
                    let more = more_hours(effective);
                    line.part(Part::Hours, more);
                    line.part(Part::Price, bill - effective - more);
                }
            }
        } else {
            line.part(Part::NotBilled, -effective);
        }
        let (mut all, mut billed) = (usage.effective, usage.billed);
        for (part, sums) in &self.others {
            line.part(*part, micros(sums.effective.usd()));
            (all, billed) = (all.plus(sums.effective), billed.plus(sums.billed));
        }
        let (line, machines) = (line.closed(all, billed), self.ids.len());
        (Machine { id: key, pool: self.pool, machines, hours, billed_hours, is_billed, line }, all, billed)
    }
}

/// Time of nodes as hours, in millionths, rounded to the nearest.
fn hours_of(node_parts: i64) -> i64 {
    i64::try_from(divided(i128::from(node_parts) * 1_000_000, i128::from(PARTS) * 3_600)).unwrap_or(i64::MAX)
}

fn micros(UsdMicros(micros): UsdMicros) -> i128 {
    i128::from(micros)
}

/// What a bill calls a machine: Azure bills a scale set as one.
fn billed_as(id: &str) -> &str {
    let lower = id.to_ascii_lowercase();
    match (lower.find("/virtualmachinescalesets/"), lower.rfind("/virtualmachines/")) {
        (Some(set), Some(machine)) if set < machine && id.starts_with("azure://") => id.get(..machine).unwrap_or(id),
        _ => id,
    }
}

/// A provider ID without its scheme.
fn path(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, path)| path)
}

/// The last name of a path.
fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// What of a machine a usage charge is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfMachine {
    /// The machine, by the hour.
    Hours,
    /// A part of it, by time: Google bills vCPUs, memory and GPUs apart.
    Parts,
    /// None of it: data transfer, for instance.
    Nothing,
}

fn of_machine(charge: &Charge<'_>) -> OfMachine {
    let is_compute = matches!(charge.service_category, "" | "Compute") && matches!(charge.service_code, "" | "AmazonEC2");
    // AWS names the instance in these as well.
    let is_beside = ["EBSOptimized", "CPUCredits"].iter().any(|word| charge.usage_type.contains(word));
    if !is_compute || is_beside {
        return OfMachine::Nothing;
    }
    let unit = charge.unit.to_ascii_lowercase();
    let is_by_parts = || charge.resource_id.starts_with("//compute.googleapis.com/") || charge.service == "Compute Engine";
    match unit.as_str() {
        "hours" | "hour" | "hrs" | "hr" | "h" => OfMachine::Hours,
        unit if (unit.contains("hour") || unit.contains("second")) && is_by_parts() => OfMachine::Parts,
        _ => OfMachine::Nothing,
    }
}
