//! `stoker replay`: recorded decisions once more, by this binary or under another policy, and what differs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stoker_core::base::ids::DecisionId;
use stoker_core::catalogue::Catalogue;
use stoker_core::plan::{Action, Note};
use stoker_core::policy::Policy;
use stoker_journal::replay::{Difference, Part, RELEASE, Recorded};
use stoker_journal::{Journal, Reader};

use super::args::{JournalArg, OutputArg, time};
use super::brief::line;
use super::exit::{CliError, Exit};
use super::explain::{decision_named, deeds, no_decision};
use super::out;
use stoker_service::price_tables;
use stoker_service::print::{count, paragraph};

/// Decisions that are reported with their differences, and differences of one: a report must not outgrow the journal.
const REPORTED: usize = 100;

/// The same in the table.
const SHOWN: usize = 20;
const LINES: usize = 5;

/// Makes recorded decisions again with this binary, and shows what differs.
///
/// A decision depends on what the journal has of it alone: the facts, what was remembered, the policy, the price
/// tables and the time. Made again from these by the same rules it is the same, byte for byte: its actions, notes,
/// explanations and memory. What the autoscaler was shown of groups is not recorded, and so not compared. Run it before an
/// upgrade with the new binary on a backup of the journal, or with --policy to see what another policy would have
/// decided. It changes nothing.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Decisions (d42, as in the logs) [default: all that the journal has]
    #[arg(value_name = "DECISION", value_parser = decision)]
    decisions: Vec<DecisionId>,
    /// Only decisions made at or after this time, e.g. 2026-11-01T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Policy file to decide by, instead of the recorded policy; each decision by itself, on what was remembered then
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    journal: JournalArg,
    #[command(flatten)]
    output: OutputArg,
}

fn decision(text: &str) -> Result<DecisionId, String> {
    decision_named(text).ok_or_else(|| "not a decision: write it like d42".to_owned())
}

/// What came of a replay.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayReport {
    /// The release that replayed.
    release: &'static str,
    /// The policy file that was replayed under; `None` of the recorded policies.
    policy: Option<String>,
    /// Which part of the journal was asked for, in words, where that has no decision.
    #[serde(skip)]
    none_in: Option<String>,
    /// Decisions looked at.
    decisions: usize,
    /// Those that are the same, byte for byte.
    same: usize,
    /// Those that are not.
    differing: usize,
    /// Those that were not recorded with all that a replay needs.
    not_replayable: usize,
    /// By which releases they were recorded; unknown ones as `unknown`.
    recorded_by: BTreeMap<String, usize>,
    /// The first that differ, oldest first.
    differ: Vec<Differing>,
}

/// A decision that differs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Differing {
    id: DecisionId,
    at: Timestamp,
    recorded_by: Option<String>,
    /// What could have caused it.
    causes: Vec<String>,
    /// How many differences there are, of which the first follow.
    count: usize,
    differences: Vec<Difference>,
}

/// Carries the command out.
pub(super) async fn run(args: &ReplayArgs) -> Result<Exit, CliError> {
    let place = args.journal.place()?;
    let reader = Journal::open_read_only(place.clone()).await?;
    let mut wanted = reader.decisions_since(args.since).await?;
    if !args.decisions.is_empty() {
        if let Some(missing) = args.decisions.iter().find(|id| wanted.binary_search(id).is_err()) {
            let place = match args.since {
                Some(since) => format!("the journal in {place} since {since}"),
                None => format!("the journal in {place}"),
            };
            return Err(no_decision(&reader, *missing, place).await?);
        }
        wanted.retain(|id| args.decisions.contains(id));
    }
    let mut report = replay(&reader, &wanted, args.policy.as_deref()).await?;
    if let (Some(since), 0) = (args.since, report.decisions) {
        let last = reader.recent(1).await?.pop();
        let last = last.map_or_else(String::new, |last| format!("; the last, {}, was made at {}", last.id, last.at));
        report.none_in = Some(format!(" since {since}{last}"));
    }
    out::print(args.output.format, &report, ReplayReport::table)?;
    Ok(match &report {
        ReplayReport { differing: 1.., .. } => Exit::Differs,
        ReplayReport { not_replayable: 1.., .. } | ReplayReport { decisions: 0, .. } => Exit::Short,
        _ => Exit::Done,
    })
}

async fn replay(reader: &Reader, wanted: &[DecisionId], file: Option<&Path>) -> Result<ReplayReport, CliError> {
    let shown = file.map(|file| file.display().to_string());
    let mut report = ReplayReport { release: RELEASE, policy: shown, ..ReplayReport::default() };
    let mut replay = reader.replay().await?;
    let mut other = None;
    let bar = ProgressBar::new(wanted.len() as u64);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} decisions, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    for id in wanted {
        bar.inc(1);
        // Pruned meanwhile, by the service that writes this journal.
        let Some(recorded) = replay.read(*id).await? else { continue };
        report.decisions += 1;
        *report.recorded_by.entry(recorded.release.clone().unwrap_or_else(|| "unknown".to_owned())).or_default() += 1;
        if !recorded.is_whole() {
            report.not_replayable += 1;
            continue;
        }
        let own = recorded.again(&recorded.catalogue, |_| ())?;
        let found = match file {
            None => own.clone(),
            Some(file) => {
                let other = match &mut other {
                    Some(other) => other,
                    // Read by the first decision's prices: they tell which types and regions there are.
                    none @ None => none.insert(OtherPolicy::of(Arc::new(price_tables::policy(Some(file), &recorded.prices)?))),
                };
                recorded.again(other.catalogue(&recorded), |_| ())?
            }
        };
        if found.is_empty() {
            report.same += 1;
            continue;
        }
        report.differing += 1;
        if report.differ.len() < REPORTED {
            report.differ.push(Differing::of(&recorded, found, file, own.is_empty()));
        }
    }
    bar.finish_and_clear();
    Ok(report)
}

/// A policy to decide by instead of the recorded one, and what it makes of the last decision's markets.
struct OtherPolicy {
    policy: Arc<Policy>,
    /// By the recorded catalogue, which is another where prices or market facts are.
    made: Option<(Arc<Catalogue>, Catalogue)>,
}

impl OtherPolicy {
    const fn of(policy: Arc<Policy>) -> Self {
        Self { policy, made: None }
    }

    fn catalogue(&mut self, recorded: &Recorded) -> &Catalogue {
        let is_of = |of: &Arc<Catalogue>| Arc::ptr_eq(of, &recorded.catalogue);
        let made = self.made.take().filter(|(of, _)| is_of(of));
        let made = made.unwrap_or_else(|| (Arc::clone(&recorded.catalogue), recorded.catalogue_of(&self.policy)));
        &self.made.insert(made).1
    }
}

impl Differing {
    fn of(recorded: &Recorded, mut found: Vec<Difference>, file: Option<&Path>, same_by_own: bool) -> Self {
        let count = found.len();
        found.truncate(REPORTED);
        Self {
            id: recorded.id,
            at: recorded.at,
            recorded_by: recorded.release.clone(),
            causes: causes(recorded, file, same_by_own),
            count,
            differences: found,
        }
    }
}

/// What could have caused a difference. All that the decision depended on is as it was recorded, which checksums prove.
fn causes(recorded: &Recorded, file: Option<&Path>, same_by_own: bool) -> Vec<String> {
    let mut causes = Vec::new();
    if let Some(file) = file {
        let alone = if same_by_own { "alone: by its own the decision is the same" } else { "and the release" };
        causes.push(format!("policy {} {alone}", file.display()));
    }
    if same_by_own {
        return causes;
    }
    causes.push(match recorded.release.as_deref() {
        Some(RELEASE) => {
            format!(
                "release: both are {RELEASE}, so this build has other rules, or decides by something unrecorded: report that"
            )
        }
        Some(other) => format!("release: {other} decided it, this is {RELEASE}; a rule changed in between"),
        None => format!("release: unknown, this is {RELEASE}; a rule changed in between"),
    });
    let otherwise =
        |what| format!("{what}: this release reads it otherwise than it was written (fields came, went or changed)");
    causes.extend(recorded.read_otherwise.iter().map(otherwise));
    causes
}

impl ReplayReport {
    fn table(&self) -> String {
        let Self { policy, none_in, decisions, same, differing, not_replayable, differ, .. } = self;
        let under = policy.as_ref().map_or_else(String::new, |file| format!(" under {file}"));
        let decided = count(*decisions, "decision");
        let mut text = match (*differing, *not_replayable) {
            (0, 0) if *decisions == 0 => format!("no decision to replay{}\n", none_in.as_deref().unwrap_or_default()),
            (0, 0) => format!("{decided}{under}, all the same\n"),
            (differing, _) => format!(
                "{decided}{under}: {same} the same, {differing} {}\n",
                if differing == 1 { "differs" } else { "differ" }
            ),
        };
        if *not_replayable > 0 {
            let what = count(*not_replayable, "decision");
            let why = format!(
                "{what} recorded before schema 8 of the journal: cannot be replayed, as it is unknown which actions were left out \
                 because they were under way"
            );
            text.push_str(&paragraph("skipped:", &why));
        }
        for one in differ.iter().take(SHOWN) {
            one.add_to(&mut text, policy.is_some());
        }
        if *differing > SHOWN {
            let _ = writeln!(text, "\nand {}; name one, or use -o json", count(differing - SHOWN, "more decision"));
        }
        text
    }
}

impl Differing {
    /// Adds the first differences to the text; of another policy the first alone, as the others follow from it.
    fn add_to(&self, text: &mut String, is_other_policy: bool) {
        let by = self.recorded_by.as_ref().map_or_else(String::new, |release| format!(", by stoker {release}"));
        let _ = writeln!(text, "\n{} at {}{by}", self.id, self.at.strftime("%Y-%m-%d %H:%M:%SZ"));
        let mut shown: Vec<String> = Vec::new();
        let (mut last, most) = ("", if is_other_policy { 1 } else { LINES });
        let mut passed = 0;
        for found in &self.differences {
            let words = in_words(found);
            // Several fields of one action are one line.
            if shown.contains(&words) {
                passed += 1;
                continue;
            }
            if shown.len() == most {
                break;
            }
            let word = if found.part == Part::Explanation { "why" } else { found.part.as_str() };
            line(text, if word == last { "" } else { word }, &words);
            (last, passed) = (word, passed + 1);
            shown.push(words);
        }
        if self.count > passed {
            line(text, "", &format!("and {}; -o json has them", count(self.count - passed, "more difference")));
        }
        for (at, cause) in self.causes.iter().enumerate() {
            line(text, if at == 0 { "cause" } else { "" }, cause);
        }
    }
}

/// A difference as one reads it: of actions and notes what they say, and where that is the same, the field.
fn in_words(found: &Difference) -> String {
    let said = |entry: &Option<Value>| match (entry, found.part) {
        (Some(entry), Part::Action) => Some(deeds(&[read::<Action>(entry)?]).concat()),
        (Some(entry), Part::Note) => Some(read::<Note>(entry)?.to_string()),
        _ => None,
    };
    let [recorded, now] = &found.entry;
    match (said(recorded), said(now)) {
        (Some(recorded), Some(now)) if recorded != now => format!("recorded: {recorded}; now: {now}"),
        (Some(recorded), None) => format!("recorded: {recorded}; not now"),
        (None, Some(now)) => format!("not recorded; now: {now}"),
        _ => {
            let text = found.to_string();
            text.strip_prefix(found.part.as_str()).unwrap_or(&text).trim_start().to_owned()
        }
    }
}

fn read<T: DeserializeOwned>(entry: &Value) -> Option<T> {
    serde_json::from_value(entry.clone()).ok()
}
