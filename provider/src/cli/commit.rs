//! `stoker commit`: how much to commit to, from the use that the service counted hour by hour.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_aws::{Access, Aws, MISSING};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::Cloud;
use stoker_core::base::kinds::CommitmentKind;
use stoker_core::base::units::{Milli, Percent, UsdMicros, UsdPerHour};
use stoker_core::limits::commitment::{Ask, Proposal, Proposals, SIZED, Scope, Term, TooLittleUse, propose};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::commitment::Commitment;
use stoker_core::policy::{Policy, RawCommitment, discount};

use super::args::{JournalArg, NowArg, OutputArg, aws_file, whole};
use super::candidates::Sources;
use super::exit::{CliError, Exit, NotFound};
use super::out::{self, Money};
use stoker_journal::{Journal, Place, Reader};
use stoker_service::clock::Clock;
use stoker_service::price_tables;
use stoker_service::print::{count, paragraph, table};

/// Seconds in a month of 730 hours, by which clouds bill commitments.
const MONTH: i64 = 730 * 3_600;

/// Longest history that is kept, in days.
const MOST_DAYS: i64 = 92;

/// Advises how much to commit to, per kind and term: what it covers and saves, when it breaks even, what it loses if use falls.
///
/// It is based on the use that the service counted in its journal, less what the policy's commitments already cover. The advice is what
/// would have cost least in that time, and at most 70 % of the mean use.
#[derive(Debug, Args)]
pub(super) struct CommitArgs {
    /// How far to look back, in days
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = whole(7..=MOST_DAYS), allow_negative_numbers = true)]
    days: i64,
    /// Only this kind of commitment
    #[arg(long, value_parser = kind())]
    kind: Option<CommitmentKind>,
    /// Only this term
    #[arg(long, value_parser = term())]
    term: Option<Term>,
    /// Your own offer: its discount on on-demand, e.g. 28%, instead of the price tables' rates
    #[arg(long, value_name = "SHARE", requires_all = ["kind", "term"], value_parser = discount)]
    discount: Option<Milli>,
    /// Policy file whose commitments are deducted [default: the policy that the service used last]
    #[arg(long, env = "STOKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Folder of price tables to use instead of the built-in ones
    #[arg(long, env = "STOKER_PRICES_DIR", value_name = "DIR")]
    prices_dir: Option<PathBuf>,
    /// File aws.yaml of the supplier for EC2: prints what its account has paid for beforehand, as the policy writes it, instead of advice
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kind", "term", "discount", "policy"])]
    from_aws: Option<PathBuf>,
    #[command(flatten)]
    journal: JournalArg,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

fn kind() -> impl TypedValueParser<Value = CommitmentKind> {
    let find = |word: String| SIZED.into_iter().find(|kind| kind.as_str() == word).ok_or("invalid commitment kind");
    PossibleValuesParser::new(SIZED.map(CommitmentKind::as_str)).try_map(find)
}

fn term() -> impl TypedValueParser<Value = Term> {
    let find = |word: String| Term::ALL.into_iter().find(|term| term.as_str() == word).ok_or("no term");
    PossibleValuesParser::new(Term::ALL.map(Term::as_str)).try_map(find)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CommitReport {
    at: Timestamp,
    days: i64,
    /// Hours looked at.
    hours: usize,
    /// Those among them whose use is known.
    known_hours: usize,
    /// Why nothing is advised; `None` where it is.
    too_little: Option<String>,
    /// Mean value per hour of the use that commitments can reach, at on-demand prices.
    used: Option<Money>,
    /// How much of that the policy's commitments cover already.
    covered_already: Option<Money>,
    /// The policy's commitments that were taken off.
    committed: Vec<CommittedRow>,
    /// One for each kind, scope and term: alternatives where they cover the same use.
    proposals: Vec<ProposalRow>,
    /// What nothing can be said of, and why.
    left_out: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CommittedRow {
    name: String,
    kind: CommitmentKind,
    until: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProposalRow {
    cloud: Cloud,
    kind: CommitmentKind,
    term: Term,
    scope: Scope,
    commit: Amount,
    /// What it costs, used or not.
    cost_per_hour: Money,
    /// How much of the use not yet covered it would have covered, in thousandths; likewise below.
    covers_permille: u32,
    /// How much of it would have been used.
    utilization_permille: u32,
    /// Below this utilization it costs more than it saves.
    break_even_permille: u32,
    saved_per_month: Money,
    if_use_falls: Vec<FallRow>,
    /// Whether 70 % of the mean use, not the history, sets the amount.
    capped: bool,
    /// By whose word it costs that.
    source: String,
    #[serde(skip)]
    shown: Shown,
}

/// How much to commit to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Amount {
    Nodes(u64),
    Gpus(u64),
    UsdPerHour(Money),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FallRow {
    by_percent: u8,
    /// Below nought it is a loss.
    saved_per_month: Money,
}

/// What people read.
#[derive(Debug)]
struct Shown {
    what: String,
    commit: String,
    cost: UsdPerHour,
    saved: UsdMicros,
    halved: UsdMicros,
}

/// Carries the command out.
pub(super) async fn run(args: &CommitArgs) -> Result<Exit, CliError> {
    let now = args.now.now();
    let prices = price_tables::prices(args.prices_dir.as_deref(), now)?;
    if let Some(file) = &args.from_aws {
        return of_account(file, &prices, args.output.format).await;
    }
    let place = args.journal.place()?;
    let reader = Journal::open_read_only(place.clone()).await?;
    let policy = match &args.policy {
        Some(path) => price_tables::policy(Some(path), &prices)?,
        None => last_policy(&reader, &place).await?,
    };
    let from = now.saturating_sub(SignedDuration::from_hours(args.days * 24)).unwrap_or(Timestamp::MIN);
    let hours = reader.used_between(from, now).await?;
    let ask = Ask { kind: args.kind, term: args.term, discount: args.discount };
    let report = CommitReport::of(propose(&hours, &prices, &policy, ask, Wall(now)), &policy, (args.days, hours.len()), now);
    let exit = if report.too_little.is_some() { Exit::Short } else { Exit::Done };
    out::print(args.output.format, &report, CommitReport::table)?;
    Ok(exit)
}

/// What no account tells of itself.
const SHARED: &str = "Plans and reserved instances of other accounts of the organisation may pay for this cluster's nodes too, and \
                      those of this account for others' nodes: write what you reckon with.";

/// The block `commitments` of a policy, and what of it people must look at.
#[derive(Serialize)]
struct Block {
    commitments: Vec<RawCommitment>,
    notes: Vec<String>,
}

/// Prints what an account has paid for beforehand. It is proposed, and not counted by itself: other clusters of the account may use it.
async fn of_account(file: &Path, prices: &PriceBook, format: out::Format) -> Result<Exit, CliError> {
    let failed = |why: String| CliError::other(format!("--from-aws: {why}"));
    let access = Access::of_system(Clock::system()).map_err(failed)?;
    let (commitments, mut notes) =
        Box::pin(Aws::commitments(aws_file("--from-aws", file)?, prices, access)).await.map_err(failed)?;
    let exit = if notes.iter().any(|note| note.starts_with(MISSING)) { Exit::Short } else { Exit::Done };
    notes.push(SHARED.to_owned());
    let block = Block { commitments, notes };
    // For people it is what they paste, with the notes as comments.
    if format != out::Format::Table {
        out::print(format, &block, |_| String::new())?;
        return Ok(exit);
    }
    let Block { commitments, notes } = block;
    let mut text = String::new();
    for note in notes {
        let _ = writeln!(text, "# {note}");
    }
    text += &if commitments.is_empty() {
        "commitments: []\n".to_owned()
    } else {
        out::yaml(&BTreeMap::from([("commitments", commitments)]))?
    };
    out::write(&text)?;
    Ok(exit)
}

pub(super) async fn last_policy(reader: &Reader, place: &Place) -> Result<Policy, CliError> {
    reader.last_policy().await?.ok_or_else(|| {
        let place = format!("the journal in {place}");
        let cure = Some("no decision has been made yet; give the policy with --policy".to_owned());
        CliError::NotFound(NotFound { what: "policy", name: String::new(), place, cure })
    })
}

impl CommitReport {
    fn of(found: Result<Proposals, TooLittleUse>, policy: &Policy, (days, hours): (i64, usize), now: Timestamp) -> Self {
        let is_off = |commitment: &&Commitment| commitment.is_active(Wall(now));
        let row = |of: &Commitment| CommittedRow { name: of.name.clone(), kind: of.kind(), until: of.until };
        let committed = policy.commitments.iter().filter(is_off).map(row).collect();
        let report = Self {
            at: now,
            days,
            hours,
            known_hours: 0,
            too_little: None,
            used: None,
            covered_already: None,
            committed,
            proposals: Vec::new(),
            left_out: Vec::new(),
        };
        match found {
            Ok(found) => Self {
                known_hours: found.known_hours,
                used: Some(found.used.into()),
                covered_already: Some(found.covered_already.into()),
                proposals: found.proposals.iter().map(ProposalRow::of).collect(),
                left_out: found.left_out.iter().map(ToString::to_string).collect(),
                ..report
            },
            Err(why) => Self { known_hours: why.hours, too_little: Some(why.to_string()), ..report },
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "Use of the last {} before {}: {} of {} hours known\n",
            count(self.days.unsigned_abs(), "day"),
            self.at.strftime("%Y-%m-%d %H:%MZ"),
            self.known_hours,
            self.hours
        );
        if let Some(why) = &self.too_little {
            return text + &paragraph("too little:", why);
        }
        if let (Some(used), Some(covered)) = (&self.used, &self.covered_already) {
            let [used, covered] = [used, covered].map(|money| UsdPerHour(money.micro_usd));
            let _ = writeln!(text, "{used}/h at on-demand prices on average, {covered}/h of it covered already");
        }
        for CommittedRow { name, kind, until } in &self.committed {
            let until = until.map_or_else(String::new, |until| format!(", until {}", until.strftime("%Y-%m-%d")));
            text.push_str(&paragraph("deducted:", &format!("{name} ({}{until})", kind.as_str())));
        }
        if self.proposals.is_empty() {
            text.push_str("\nNo use that a commitment of known rates would cover.\n");
        } else {
            text.push('\n');
            text.push_str(&self.proposals_table());
            text.push_str(&paragraph(
                "note:",
                "COVERS: share of the use that no commitment covers yet. USED: share of the commitment that would be used; \
                 below BREAK-EVEN it costs more than it saves. Rows that cover the same use are alternatives: choose one, \
                 write it into the policy, and run this again.",
            ));
            if self.proposals.iter().any(|row| row.cost_per_hour.micro_usd == 0) {
                text.push_str(&paragraph(
                    "note:",
                    "no row is shown where 70 % of the mean use is less than one, or where use is too unsteady to pay for \
                     one.",
                ));
            }
        }
        for why in &self.left_out {
            text.push_str(&paragraph("excluded:", why));
        }
        text
    }

    fn proposals_table(&self) -> String {
        let header =
            ["COMMITMENT", "TERM", "COMMIT", "COST/H", "COVERS", "USED", "BREAK-EVEN", "SAVES/MONTH", "IF USE HALVES", "SCOPE"];
        let mut sources = Sources::default();
        let rows = self.proposals.iter().map(|row| {
            let Shown { what, commit, cost, saved, halved } = &row.shown;
            let mark = sources.mark(&row.source);
            vec![
                format!("{} {}", row.cloud, row.kind.as_str()),
                row.term.as_str().to_owned(),
                commit.clone(),
                cost.to_string(),
                percent(row.covers_permille),
                percent(row.utilization_permille),
                percent(row.break_even_permille),
                saved.to_string(),
                halved.to_string(),
                format!("{what} {mark}"),
            ]
        });
        let rows: Vec<_> = rows.collect();
        table(&header, &header[2..9], rows) + &sources.legend()
    }
}

impl ProposalRow {
    fn of(proposal: &Proposal) -> Self {
        let Proposal { cloud, kind, scope, term, source, unit: _, advice } = proposal;
        let (cost, month) = (proposal.rate(), |rate: UsdPerHour| rate.over_seconds(MONTH));
        let (what, commit, shown) = match scope {
            Scope::Nodes { region, instance_type } => {
                (format!("{instance_type} {region}"), Amount::Nodes(advice.commit), count(advice.commit, "node"))
            }
            Scope::Gpus { region, model, memory } => {
                (format!("{model} {} GiB {region}", memory.0 / 1024), Amount::Gpus(advice.commit), count(advice.commit, "GPU"))
            }
            Scope::Family { region, family } => {
                (format!("{family} {region}"), Amount::UsdPerHour(cost.into()), format!("{cost}/h"))
            }
            Scope::Cloud => ("all of it".to_owned(), Amount::UsdPerHour(cost.into()), format!("{cost}/h")),
        };
        let halved = advice.if_use_falls.iter().find(|fall| fall.by == Percent(50));
        let falls =
            advice.if_use_falls.iter().map(|fall| FallRow { by_percent: fall.by.0, saved_per_month: month(fall.saved).into() });
        Self {
            cloud: cloud.clone(),
            kind: *kind,
            term: *term,
            scope: scope.clone(),
            commit,
            cost_per_hour: cost.into(),
            covers_permille: advice.covers.0,
            utilization_permille: advice.utilization.0,
            break_even_permille: advice.break_even.0,
            saved_per_month: month(advice.saved).into(),
            if_use_falls: falls.collect(),
            capped: advice.cap < advice.best_in_hindsight,
            source: source.clone(),
            shown: Shown {
                what,
                commit: shown,
                cost,
                saved: month(advice.saved),
                halved: month(halved.map_or(advice.saved, |fall| fall.saved)),
            },
        }
    }
}

/// `62.5%` of thousandths.
fn percent(thousandths: u32) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}
