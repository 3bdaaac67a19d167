//! `stoker report --from-prometheus`: a cluster that has no Stoker yet, by the metrics that a Prometheus kept of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stoker_advice::before::{Amounts, Figures, Kind, PodTime, a_month};
use stoker_advice::rollup::HOUR;
use stoker_core::base::ids::ClusterName;
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{CapacityType, Market};
use stoker_core::market::price::Entry;
use stoker_core::policy::{Policy, UnknownQuota};
use stoker_service::feeds::prometheus::history::{Ask, NO_PODS, Past};
use stoker_service::feeds::prometheus::{Asker, Connection};
use stoker_service::init::{self, Cluster, Source};
use stoker_service::policy_file;
use stoker_service::price_tables::PriceTables;
use stoker_service::print::Table;
use stoker_service::print::{count, paragraph, wrapped};
use stoker_sim::demand::{Pod, Resources, Service};

use super::table::{hours, percent};
use super::{Format, ReportArgs};
use crate::cli::exit::{CliError, Exit, NotFound};
use crate::cli::out::{self, Money, text_of};
use crate::cli::simulate::{BeforeAfter, LeftOut, Now, Recorded, Tried, still_running};

/// Days that are looked at where nobody asks for others: a Prometheus keeps 15 by default.
const USUAL_DAYS: i64 = 14;

/// What the drafted policy is called.
const DRAFTED: &str = "drafted policy";

/// A Prometheus that is asked.
#[derive(Debug, Args)]
pub(super) struct PrometheusArgs {
    /// Reports a cluster that has no Stoker yet, by what this Prometheus kept of kube-state-metrics and dcgm-exporter, and what it would
    /// cost with Stoker
    #[arg(long, value_name = "URL", conflicts_with_all = ["month", "year", "by", "idle", "focus", "before_after"])]
    pub(super) from_prometheus: Option<String>,
    /// Prometheus that knows the signals of the policy: says what one of what they count each second costs, such as a request or a million
    /// tokens
    #[arg(long, value_name = "URL", conflicts_with_all = ["from_prometheus", "focus"])]
    pub(super) unit_cost: Option<String>,
    /// Only series with this label, e.g. cluster=prod-east; repeatable
    #[arg(long = "match", value_name = "LABEL=VALUE", value_parser = matcher, requires = "from_prometheus")]
    matches: Vec<(String, String)>,
    /// File with a bearer token for Prometheus
    #[arg(long, env = "STOKER_PROMETHEUS_TOKEN_FILE", value_name = "FILE")]
    prometheus_token_file: Option<PathBuf>,
    /// CA bundle for Prometheus's certificate, in PEM [default: the system's CAs]
    #[arg(long, env = "STOKER_PROMETHEUS_CA", value_name = "FILE")]
    prometheus_ca: Option<PathBuf>,
}

impl PrometheusArgs {
    /// Who asks this Prometheus.
    pub(super) fn asker(&self, url: &str) -> Result<Asker, CliError> {
        let (token_file, ca) = (self.prometheus_token_file.clone(), self.prometheus_ca.clone());
        Asker::of_the_past(&Connection { url: url.to_owned(), token_file, ca }).map_err(CliError::other)
    }
}

fn matcher(text: &str) -> Result<(String, String), String> {
    let wrong = || "write it like cluster=prod-east".to_owned();
    let (label, value) = text.split_once('=').ok_or_else(wrong)?;
    let is_name = label.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name { Ok((label.to_owned(), value.to_owned())) } else { Err(wrong()) }
}

/// What there was, what it cost, and what it would cost with Stoker.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    from: Timestamp,
    /// Not included.
    until: Timestamp,
    /// The first moment of which anything is known.
    known_since: Timestamp,
    /// How often the cluster was looked at.
    step_seconds: i64,
    seconds: i64,
    /// Those of which samples tell.
    known_seconds: i64,
    nodes: Nodes,
    total: Sums,
    by_type: Vec<TypeLine>,
    /// GPU pods that ran.
    pods: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_after: Option<BeforeAfter>,
    /// What is not known, or not as it was.
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Nodes {
    average: f64,
    most: u32,
    last: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TypeLine {
    /// `null` where nobody tells, as below.
    instance_type: Option<String>,
    region: Option<String>,
    capacity_type: Option<CapacityType>,
    gpu_model: Option<String>,
    hourly: Option<Money>,
    average_nodes: f64,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sums {
    node_seconds: i64,
    /// Those of nodes without a known price: they are in no cost.
    unpriced_node_seconds: i64,
    gpu_seconds: i64,
    /// Those in which a pod held the GPU; `null` where nothing is known of any pod.
    held_gpu_seconds: Option<i64>,
    /// GPU-seconds of which readings tell.
    read_gpu_seconds: i64,
    /// How many of those GPUs worked; `null` where none tells.
    worked_gpu_seconds: Option<i64>,
    /// `null` where no price is known.
    cost: Option<Money>,
    cost_per_month: Option<Money>,
    /// Of the cost, what was paid for time of which readings tell.
    read: Money,
    /// Of that in turn, cost × (1 − use); `null` where no reading tells.
    waste: Option<Money>,
    waste_per_month: Option<Money>,
}

impl Sums {
    fn of(amounts: &Amounts, known_seconds: i64, knows_pods: bool) -> Self {
        let month = |of| a_month(of, known_seconds).map(Money::from);
        let is_priced = amounts.unpriced_node_seconds < amounts.node_seconds;
        let cost = is_priced.then_some(amounts.cost);
        Self {
            node_seconds: amounts.node_seconds,
            unpriced_node_seconds: amounts.unpriced_node_seconds,
            gpu_seconds: amounts.gpu_seconds,
            held_gpu_seconds: knows_pods.then_some(amounts.held_seconds),
            read_gpu_seconds: amounts.read_seconds,
            worked_gpu_seconds: (amounts.read_seconds > 0).then_some(amounts.worked_seconds),
            cost: cost.map(Money::from),
            cost_per_month: cost.and_then(month),
            read: amounts.read.into(),
            waste: amounts.waste().map(Money::from),
            waste_per_month: amounts.waste().and_then(month),
        }
    }
}

/// A share, in percent.
fn share(part: i64, whole: i64) -> String {
    percent((i128::from(part) * 1_000 + i128::from(whole) / 2) / i128::from(whole.max(1)))
}

/// So many of a time, on average.
fn average(seconds: i64, of: i64) -> f64 {
    let thousandths = i128::from(seconds) * 1_000 / i128::from(of.max(1));
    f64::from(i32::try_from(thousandths).unwrap_or(i32::MAX)) / 1_000.0
}

/// Carries the command out.
pub(super) async fn run(args: &ReportArgs, url: &str) -> Result<Exit, CliError> {
    if matches!(args.format, Format::Csv | Format::Html) {
        return Err(CliError::Usage("--from-prometheus: there is a table and -o json".to_owned()));
    }
    let now = args.now.now();
    let of = &args.prometheus;
    let asker = of.asker(url)?;
    let tables = PriceTables::load(args.prices_dir.as_deref(), None, now)?;
    let days = SignedDuration::from_hours(24 * args.days.unwrap_or(USUAL_DAYS));
    let since = now.saturating_sub(days).unwrap_or(Timestamp::MIN);
    let ask = Ask { since, until: now, match_labels: of.matches.iter().cloned().collect() };
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{bar:40} {percent} % {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("read from Prometheus");
    let past = Past::read(&asker, &ask, |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    let past = past.await.map_err(CliError::other)?;
    bar.finish_and_clear();
    let report = Report::of(&past, args.policy.as_deref(), tables, (since, now))?;
    out::write(&match args.format {
        Format::Json => out::json(&report)?,
        _ => report.table(),
    })?;
    Ok(if report.before_after.is_none() || report.total.cost.is_none() { Exit::Short } else { Exit::Done })
}

impl Report {
    fn of(
        past: &Past,
        policy: Option<&Path>,
        mut tables: PriceTables,
        (from, until): (Timestamp, Timestamp),
    ) -> Result<Self, CliError> {
        tables.prices = past.sold(&tables.prices).into();
        for facts in tables.facts.values_mut() {
            facts.clouds.extend(tables.prices.entries().map(|(market, _)| market.place.cloud.clone()));
        }
        let spot = |market: &Market| -> Option<UsdPerHour> {
            match tables.entry(market) {
                Some(Entry::Price(quote)) => Some(quote.price),
                Some(Entry::NoSignal(_)) | None => None,
            }
        };
        let kinds = past.kinds(&tables.prices, spot);
        let figures = past.observed.figures(&kinds);
        let mut notes = Vec::new();
        let grid = past.observed.grid();
        let first = past.observed.known().first().unwrap_or(0);
        let known_since = Timestamp::from_second(grid.begins(first)).unwrap_or(from);
        // Samples seldom begin with the first look.
        if grid.begins(first) > from.as_second() + HOUR {
            notes.push(format!(
                "the Prometheus has nothing of the time before {known_since}: how long it keeps samples is its own option"
            ));
        }
        if past.observed.known().ranges() > 1 {
            let gaps = past.observed.known().ranges() - 1;
            notes.push(format!(
                "{} without samples: what was then is unknown, in no figure, and not played",
                count(gaps, "time")
            ));
        }
        notes
            .extend(past.missing.iter().map(|of| format!("{} is unknown: there is no {}: {}", of.unknown, of.series, of.cure)));
        if past.shared_nodes > 0 {
            notes.push(format!("left out: {} with shares of GPUs (MIG, time-slices)", count(past.shared_nodes, "node")));
        }
        notes.extend(unpriced(&figures));
        let Figures { seconds, known_seconds, nodes_last, nodes_most, total, ref lines } = figures;
        let (recorded, pods) = recorded(past, &kinds, known_seconds, (from, until));
        let knows_pods = !past.missing.contains(&NO_PODS);
        let before_after = match played(past, policy, &tables, &kinds, recorded, &figures) {
            Ok(before_after) => Some(before_after),
            // What there was is worth reading without what would be.
            Err(error) if policy.is_none() => {
                notes.push(format!("not played: {error}"));
                None
            }
            Err(error) => return Err(error),
        };
        let line = |(kind, amounts): &(Kind, Amounts)| TypeLine {
            instance_type: kind.instance_type.clone(),
            region: kind.region.clone(),
            capacity_type: kind.bought,
            gpu_model: kind.model.clone(),
            hourly: kind.rate.map(Money::from),
            average_nodes: average(amounts.node_seconds, known_seconds),
            sums: Sums::of(amounts, known_seconds, knows_pods),
        };
        Ok(Self {
            from,
            until,
            known_since,
            step_seconds: grid.step(),
            seconds,
            known_seconds,
            nodes: Nodes { average: average(total.node_seconds, known_seconds), most: nodes_most, last: nodes_last },
            total: Sums::of(&total, known_seconds, knows_pods),
            by_type: lines.iter().map(line).collect(),
            pods,
            before_after,
            notes,
        })
    }

    fn table(&self) -> String {
        let day = |at: Timestamp| at.strftime("%Y-%m-%d %H:%MZ").to_string();
        let Sums { gpu_seconds, held_gpu_seconds, read_gpu_seconds, worked_gpu_seconds, .. } = self.total;
        let often = match self.step_seconds {
            60 => "minute".to_owned(),
            3_600 => "hour".to_owned(),
            step => format!("{} min", step / 60),
        };
        let (from, until) = (day(self.known_since), day(self.until));
        let mut text = format!("GPU nodes from {from} to {until}, looked at every {often}");
        let held = held_gpu_seconds.map_or_else(
            || "how many pods held is unknown".to_owned(),
            |held| format!("pods held {}, {}", hours(held), share(held, gpu_seconds)),
        );
        let worked = worked_gpu_seconds.map_or_else(
            || "how many worked is unknown".to_owned(),
            |worked| {
                let read = if read_gpu_seconds == gpu_seconds {
                    String::new()
                } else {
                    format!("; readings tell of {}", share(read_gpu_seconds, gpu_seconds))
                };
                format!("GPUs worked for {}, {}{read}", hours(worked), share(worked, read_gpu_seconds))
            },
        );
        let _ = write!(
            text,
            "\n{:.1} nodes on average, {} at most, {} at the end\n{} GPU-hours; {held}; {worked}\n{}\n\n",
            self.nodes.average,
            self.nodes.most,
            self.nodes.last,
            hours(gpu_seconds),
            self.money()
        );
        text += &text_of(self.lines());
        if let Some(played) = &self.before_after {
            text.push('\n');
            text.extend(played.sentences().iter().map(|sentence| wrapped("", sentence)));
            for grid in played.grids() {
                text.push('\n');
                text += &text_of(grid);
            }
        }
        text.push('\n');
        let notes = self.notes.iter().map(|note| ("note", note.clone()));
        let played = self.before_after.iter().flat_map(BeforeAfter::notes);
        text.extend(notes.chain(played).map(|(word, what)| paragraph(&format!("{word}:"), &what)));
        text.push_str(&paragraph("assumed:", ASSUMED));
        text
    }

    fn money(&self) -> String {
        let (Some(cost), Some(month)) = (&self.total.cost, &self.total.cost_per_month) else {
            return "Cost unknown: no price of any node is known".to_owned();
        };
        let wasted = match (&self.total.waste, &self.total.waste_per_month) {
            (Some(waste), Some(month)) => {
                format!("wasted {} of {}, {} a month", usd(waste), usd(&self.total.read), usd(month))
            }
            _ => "wasted: unknown".to_owned(),
        };
        format!("Cost {}, {} a month; {wasted}", usd(cost), usd(month))
    }

    fn lines(&self) -> Table {
        let header = ["TYPE", "REGION", "CAPACITY", "GPU", "NODES", "GPU-HOURS", "HELD", "USED", "$/HOUR", "COST", "WASTE"];
        let known = |text: Option<&str>| text.unwrap_or("unknown").to_owned();
        let amount = |money: Option<&Money>| money.map_or_else(|| "unknown".to_owned(), usd);
        let row = |line: &TypeLine| {
            let sums = &line.sums;
            vec![
                known(line.instance_type.as_deref()),
                known(line.region.as_deref()),
                known(line.capacity_type.map(CapacityType::as_str)),
                known(line.gpu_model.as_deref()),
                format!("{:.1}", line.average_nodes),
                hours(sums.gpu_seconds),
                sums.held_gpu_seconds.map_or_else(|| "unknown".to_owned(), |held| share(held, sums.gpu_seconds)),
                sums.worked_gpu_seconds.map_or_else(|| "unknown".to_owned(), |worked| share(worked, sums.read_gpu_seconds)),
                line.hourly.as_ref().map_or_else(|| "unknown".to_owned(), |rate| UsdPerHour(rate.micro_usd).to_string()),
                amount(sums.cost.as_ref()),
                amount(sums.waste.as_ref()),
            ]
        };
        Table {
            caption: "By type".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            numbers: 4..10,
            rows: self.by_type.iter().map(row).collect(),
        }
    }
}

const ASSUMED: &str = "Nodes cost the list price of their type and region, reserved ones too, and spot nodes what the simulated markets say, without discounts and \
                       commitments. Each pod needs the GPU model that it ran on, runs as long as it did, and may run on any node of its \
                       pool. Quotas have room for the nodes that ran. A month has 730 hours like those that are known.";

fn usd(money: &Money) -> String {
    stoker_core::base::units::UsdMicros(money.micro_usd).to_string()
}

/// Which nodes have no known price.
fn unpriced(figures: &Figures) -> Option<String> {
    // That nobody tells what nodes are is said elsewhere.
    let unpriced = || figures.lines.iter().filter(|(kind, _)| kind.rate.is_none() && kind.instance_type.is_some());
    let names: BTreeSet<String> = unpriced()
        .map(|(kind, _)| {
            let name = |of: &Option<String>| of.clone().unwrap_or_else(|| "unknown".to_owned());
            format!("{} in {}", name(&kind.instance_type), name(&kind.region))
        })
        .collect();
    let seconds: i64 = unpriced().map(|(_, amounts)| amounts.node_seconds).sum();
    (!names.is_empty()).then(|| {
        let names: Vec<String> = names.into_iter().collect();
        format!("{} node-hours are in no cost, as no table has a price of: {}", hours(seconds), names.join(", "))
    })
}

/// The pods as a demand, and how many ran. They name no pool yet.
fn recorded(
    past: &Past,
    kinds: &BTreeMap<String, Kind>,
    known_seconds: i64,
    (from, until): (Timestamp, Timestamp),
) -> (Recorded, usize) {
    let times = past.observed.pods();
    let ran = times.pods.len();
    let mut left_out = LeftOut::default();
    for name in &times.never_ran {
        left_out.add("waited and never ran, so that nobody knows for how long they would have".to_owned(), name);
    }
    let goes_on = times.pods.iter().filter(|pod| pod.goes_on).count();
    let notes = if goes_on > 0 { vec![still_running(goes_on as u64)] } else { Vec::new() };
    let pod = |of: PodTime| Pod {
        name: of.name,
        arrives: seconds(of.arrives),
        runs: seconds(of.runs).max(1.0),
        requests: Resources { gpus: of.gpus, milli_cpu: of.milli_cpu, memory_mib: of.memory_mib },
        gpu_milli: 1_000,
        models: kinds.get(&of.node).and_then(|kind| kind.model.clone()).into_iter().collect(),
        service: Service::Other,
        // Until it is known which pools there are, the node that it ran on.
        pool: Some(of.node),
    };
    let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
    let recorded = Recorded {
        shown: format!("GPU pods from {} to {}", day(from), day(until)),
        seconds: seconds(known_seconds),
        pods: times.pods.into_iter().map(pod).collect(),
        left_out,
        notes,
    };
    (recorded, ran)
}

fn seconds(of: i64) -> f64 {
    SignedDuration::from_secs(of).as_secs_f64()
}

/// The pods played under a policy, and what that saves of what there was.
fn played(
    past: &Past,
    policy: Option<&Path>,
    tables: &PriceTables,
    kinds: &BTreeMap<String, Kind>,
    mut recorded: Recorded,
    figures: &Figures,
) -> Result<BeforeAfter, CliError> {
    let mut notes = Vec::new();
    let tried = match policy {
        Some(file) => Tried::of_file(Some(file), tables, &mut notes)?,
        None => Tried::of(DRAFTED, drafted(past, tables)?, tables, &mut notes, None)?,
    };
    for pod in &mut recorded.pods {
        let kind = pod.pool.take().and_then(|node| kinds.get(&node));
        pod.pool = kind.and_then(|kind| pool_of(&tried, kind));
    }
    let Figures { known_seconds, total, .. } = figures;
    let is_read = total.read_seconds >= total.gpu_seconds;
    let now = Now {
        paid: total.cost,
        nodes: average(total.node_seconds, *known_seconds),
        worked_gpu_hours: is_read.then(|| seconds(total.worked_seconds) / 3_600.0),
    };
    // Nobody knows what is saved where nobody knows what a part of the nodes cost, or where their pods are not played.
    let are_played = recorded.pods.iter().all(|pod| pod.pool.is_some());
    let now = (total.unpriced_node_seconds == 0 && are_played).then_some(now);
    BeforeAfter::of(&[tried], recorded, now, tables, notes)
}

/// The pool that sells what a node is, else one that sells its GPU model.
fn pool_of(tried: &Tried, kind: &Kind) -> Option<String> {
    let groups = || tried.catalogue.groups.values();
    let is_of = |of: &str, told: Option<&String>| told.is_some_and(|told| told == of);
    let alike = groups().find(|group| {
        is_of(group.place.instance_type.as_str(), kind.instance_type.as_ref())
            && is_of(group.place.region.as_str(), kind.region.as_ref())
    });
    let found = alike.or_else(|| groups().find(|group| is_of(group.spec.gpu_model.as_str(), kind.model.as_ref())));
    found.map(|group| group.pool.to_string())
}

/// The policy that `stoker init --from-nodes` would draft.
fn drafted(past: &Past, tables: &PriceTables) -> Result<Policy, CliError> {
    let name = ClusterName::new("before-stoker").map_err(CliError::other)?;
    let drafted = init::draft(Source::Nodes, &name, &Cluster::of_nodes(past.nodes()), &tables.prices, Timestamp::UNIX_EPOCH);
    let drafted = drafted.map_err(|error| match error {
        // What is missing is said already, each with its cure.
        init::InitError::Nothing { what, .. } => CliError::NotFound(NotFound {
            what,
            name: String::new(),
            place: "the cluster of which cloud and type are known, and in the price tables".to_owned(),
            cure: Some("no policy can be drafted; give one with --policy".to_owned()),
        }),
        other => CliError::other(other),
    })?;
    let mut policy = policy_file::parse(DRAFTED, &drafted.text, Some(&tables.prices)).map_err(CliError::other)?;
    // No metric tells of quotas. They had room for what ran, and a pool grows to no more nodes than that.
    policy.unknown_quota = Some(UnknownQuota::Allow);
    // Nor of reservations: what they cost is not known, and such nodes count at list.
    for pool in &mut policy.pools {
        pool.prefer.retain(|bought| *bought != CapacityType::Reserved);
        if pool.prefer.is_empty() {
            pool.prefer.push(CapacityType::OnDemand);
        }
    }
    Ok(policy)
}
