//! What was spent in a time, day by day, from what the journal keeps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use stoker_advice::rollup::HOUR;
use stoker_advice::spend::{By, CommitmentCost, DAY, GpuUse, Idle, KeptDay, Lives, Tariff, spread};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;
use stoker_journal::{Reader, SPANS_KEPT};

use super::USUAL_DAYS;
use super::figures::Sums;
use crate::cli::exit::CliError;

/// A time that is reported, in whole days of UTC but for the last, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) from: i64,
    pub(super) until: i64,
}

impl Period {
    /// The time that is asked for, and the one before it that it is compared with: as much of the month or year before as of this one is
    /// over, or as many days before these.
    pub(super) fn of(
        (month, year, days): (Option<Date>, Option<Date>, Option<i64>),
        now: Timestamp,
    ) -> Result<(Self, Self), CliError> {
        let (option, begin, months) = match (month, year) {
            (Some(month), _) => ("--month", month, 1),
            (None, Some(year)) => ("--year", year, 12),
            (None, None) => {
                return Ok(Self::last(days.unwrap_or(USUAL_DAYS), now));
            }
        };
        let now = now.as_second();
        let second = |date: Date| date.to_zoned(TimeZone::UTC).map(|at| at.timestamp().as_second());
        let after = |by: i64| begin.checked_add(jiff::Span::new().months(by)).and_then(second);
        let beyond = |_| CliError::Usage(format!("{option}: beyond the times that can be told"));
        let (before, from) = (after(-months).map_err(beyond)?, after(0).map_err(beyond)?);
        let next = after(months).map_err(beyond)?;
        if from > now {
            return Err(CliError::Usage(format!("{option}: {} is to come", begin.strftime("%Y-%m"))));
        }
        let until = next.min(now);
        let until_before = if next <= now { from } else { (before + (now - from)).min(from) };
        Ok((Self { from, until }, Self { from: before, until: until_before }))
    }

    /// So many days, today included, and as many before them.
    pub(super) fn last(days: i64, now: Timestamp) -> (Self, Self) {
        let (now, length) = (now.as_second(), days * DAY);
        let from = (now.div_euclid(DAY) + 1) * DAY - length;
        (Self { from, until: now }, Self { from: from - length, until: now - length })
    }

    /// Without its last day, where that is a part of a day whose spans and pods are forgotten: what is kept of it is the
    /// whole of it.
    fn with_whole_days(self, now: Timestamp, has_spans: impl Fn(i64) -> bool) -> Self {
        let last = self.until.div_euclid(DAY);
        if self.until >= now.as_second() || has_spans(last) {
            self
        } else {
            Self { until: (last * DAY).max(self.from), ..self }
        }
    }

    /// Its days, counted from 1970.
    fn days(self) -> std::ops::RangeInclusive<i64> {
        self.from.div_euclid(DAY)..=(self.until - 1).div_euclid(DAY)
    }
}

/// By whose commitments days that were summed up are billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Billed {
    /// By those of their day.
    AsKept,
    /// By those of the policy that was named.
    ByThisPolicy,
}

/// How far rows are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// As far as days are kept: workloads where they are not too many.
    AsKept,
    /// Every workload.
    Workloads,
    /// Every machine, and every workload on it.
    Machines,
}

impl Apart {
    /// Whether the rows of a day that was summed up are so far apart.
    fn is_in(self, kept: &KeptDay) -> bool {
        match self {
            Self::AsKept => true,
            Self::Workloads => !kept.is_folded(),
            Self::Machines => false,
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) idle: Idle,
    pub(super) apart: Apart,
    /// Whether readings are asked what was wasted.
    pub(super) with_use: bool,
    pub(super) billed: Billed,
}

/// What was spent in a time, beside its rows.
pub(super) struct Reckoned {
    pub(super) period: Period,
    /// Seconds of which it is known what nodes did.
    pub(super) known_seconds: i64,
    /// Seconds of which it is known which pods there were.
    pub(super) pods_known_seconds: i64,
    pub(super) commitments: Vec<CommitmentCost>,
    pub(super) lives: Lives,
    /// What became of nodes is kept since then.
    pub(super) lives_since: i64,
}

/// What was spent in a time, with the sums of its days.
pub(super) struct Summed {
    pub(super) reckoned: Reckoned,
    pub(super) sums: Sums,
}

/// The spend that a journal tells of, and what it is billed by.
pub(super) struct Spend<'a> {
    pub(super) reader: &'a Reader,
    pub(super) tariff: Tariff,
    pub(super) now: Timestamp,
}

impl Spend<'_> {
    /// What was spent in a time; `each` gets its days, until it wants no more. Days that were summed up are taken as they
    /// are, by the commitments of their day, unless that is not what was asked for. One day is read after another: a
    /// month of a large cluster does not fit into memory.
    pub(super) async fn reckon(
        &self,
        period: Period,
        asked: Asked,
        mut each: impl FnMut(KeptDay) -> Result<ControlFlow<()>, CliError>,
    ) -> Result<Reckoned, CliError> {
        let Self { reader, tariff, now } = self;
        let spans_since = now.as_second() - SPANS_KEPT.as_secs();
        let pods_since = reader.pods_known().await?.0.first().map_or(i64::MIN, |(since, _)| *since);
        let has_spans = |day: i64| day * DAY >= spans_since.max(pods_since);
        let period = period.with_whole_days(*now, has_spans);
        let is_kept = |kept: &KeptDay| {
            let (begin, end) = (kept.day * DAY, (kept.day + 1) * DAY);
            asked.billed == Billed::AsKept || tariff.reaching((begin, end)).eq(&kept.billed_by) || !has_spans(kept.day)
        };
        let kept = reader.kept_days(period.from.div_euclid(DAY), period.until.div_euclid(DAY)).await?;
        let mut kept: BTreeMap<i64, KeptDay> = kept.into_iter().filter(is_kept).map(|kept| (kept.day, kept)).collect();
        let mut commitments: BTreeMap<String, CommitmentCost> = BTreeMap::new();
        let (mut known_seconds, mut pods_known_seconds) = (0, 0);
        for number in period.days() {
            let mut of_day = match kept.remove(&number) {
                Some(kept) if asked.apart.is_in(&kept) => kept,
                Some(kept) => match reader.kept_rows(number).await? {
                    Some(rows) => KeptDay { rows, ..kept },
                    None if has_spans(number) => self.day(period, number, asked).await?,
                    // Its pods are forgotten: what is left is what was folded.
                    None => kept,
                },
                None => self.day(period, number, asked).await?,
            };
            if asked.idle == Idle::Spread {
                if asked.apart != Apart::Machines {
                    of_day = of_day.without_machines();
                }
                of_day.rows = spread(&of_day.rows);
            }
            for of_day in &of_day.commitments {
                let sum = commitments.entry(of_day.name.clone());
                sum.and_modify(|sum| *sum = sum.plus(of_day)).or_insert_with(|| of_day.clone());
            }
            known_seconds += of_day.known_seconds;
            pods_known_seconds += of_day.pods_known_seconds;
            if each(of_day)?.is_break() {
                break;
            }
        }
        let lives = reader.lives(at(period.from), at(period.until)).await?;
        Ok(Reckoned {
            period,
            known_seconds,
            pods_known_seconds,
            lives: Lives::of(&lives, period.from, period.until),
            lives_since: spans_since.max(period.from),
            commitments: commitments.into_values().collect(),
        })
    }

    /// A day of a time, from the spans of nodes and what pods held.
    async fn day(&self, period: Period, day: i64, asked: Asked) -> Result<KeptDay, CliError> {
        let (begin, end) = ((day * DAY).max(period.from), ((day + 1) * DAY).min(period.until));
        let spent = self.reader.spent(at(begin), at(end)).await?;
        let gpu_use = if asked.with_use { self.reader.gpu_use(day).await? } else { GpuUse::default() };
        Ok(spent.day(&self.tariff, day, (begin, end), &gpu_use, asked.apart == Apart::Machines))
    }

    /// What was spent in a time, and the sums of its days by each of what is asked for.
    pub(super) async fn summed(&self, period: Period, asked: Asked, by: &[&By]) -> Result<Summed, CliError> {
        let mut sums = Sums::by(by);
        let add = |day: KeptDay| {
            sums.add(&day);
            Ok(ControlFlow::Continue(()))
        };
        let reckoned = self.reckon(period, asked, add).await?;
        Ok(Summed { reckoned, sums })
    }
}

/// The last days.
pub(in crate::cli) struct LastDays {
    pub(in crate::cli) days: Vec<KeptDay>,
    /// Hours among them of which it is known what nodes did.
    pub(in crate::cli) known_hours: i64,
    pub(in crate::cli) since: Timestamp,
}

/// The last days, by the commitments of each.
pub(in crate::cli) async fn last_days(
    reader: &Reader,
    (policy, prices): (&Arc<Policy>, &Arc<PriceBook>),
    days: i64,
    now: Timestamp,
) -> Result<LastDays, CliError> {
    let spend = Spend { reader, tariff: Tariff::new(Arc::clone(policy), Arc::clone(prices), now), now };
    let (period, _) = Period::last(days, now);
    let asked = Asked { idle: Idle::Separate, apart: Apart::AsKept, with_use: false, billed: Billed::AsKept };
    let mut days = Vec::new();
    let keep = |day| {
        days.push(day);
        Ok(ControlFlow::Continue(()))
    };
    let reckoned = spend.reckon(period, asked, keep).await?;
    Ok(LastDays { days, known_hours: reckoned.known_seconds / HOUR, since: at(period.from) })
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}
