//! `stoker supplier`: a plugin held against the rules of the protocol, and the simulated supplier served as a plugin.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use stoker_core::base::ids::{Cloud, ClusterName, InstanceType, Region, ZoneId};
use stoker_core::base::units::UsdPerHour;
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::price::{Entry, PriceBook};
use stoker_plugin::PROTOCOL;
use stoker_plugin::check::{self, Checked, Verdict};
use stoker_plugin::client::Described;
use stoker_plugin::dial::connect;
use stoker_plugin::server::Served;
use stoker_proto::supplier as wire;
use stoker_service::clock::Clock;
use stoker_service::listener::DialFiles;
use stoker_service::price_tables;
use stoker_simulated::supplier::Simulated;

use super::exit::{CliError, Exit};
use super::out;
use super::serve::told_to_stop;

/// Suppliers that are plugins: processes that know a cloud which Stoker does not.
#[derive(Debug, Args)]
pub(super) struct SupplierArgs {
    #[command(subcommand)]
    command: SupplierCommand,
}

#[derive(Debug, Subcommand)]
enum SupplierCommand {
    Check(CheckArgs),
    Simulate(SimulateArgs),
}

/// Checks whether a plugin keeps the rules of the protocol.
///
/// It makes two machines for a cluster that nobody has, looks at all that the plugin tells of them, and ends them.
#[derive(Debug, Args)]
struct CheckArgs {
    #[arg(
        long,
        value_name = "ENDPOINT",
        help = "Where the plugin listens: unix:///path/to/socket, http://127.0.0.1:port or https://host:port"
    )]
    endpoint: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// Most dollars that the two machines may cost, for the ten minutes that they may live
    #[arg(long, value_name = "USD", default_value_t = 0.5)]
    budget: f64,
    /// Where to make them: CLOUD/REGION/ZONE/TYPE/CAPACITY [default: the cheapest on-demand offer of the price tables there]
    #[arg(long, value_name = "MARKET")]
    market: Option<String>,
    /// Seconds that a machine may take to be gone once it was told to end
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    gone_within: u64,
    /// Price tables to use instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    prices_dir: Option<PathBuf>,
}

/// What both sides show where the endpoint is https://host:port.
#[derive(Debug, Args)]
struct TlsArgs {
    /// Who signs the plugin's certificate, in PEM
    #[arg(long = "ca-file", id = "ca_file", value_name = "FILE", requires_all = ["cert_file", "key_file"])]
    ca: Option<PathBuf>,
    /// Certificate that is shown to the plugin
    #[arg(long = "cert-file", id = "cert_file", value_name = "FILE", requires = "ca_file")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long = "key-file", id = "key_file", value_name = "FILE", requires = "ca_file")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    fn files(&self) -> Option<DialFiles> {
        Some(DialFiles { ca: self.ca.clone()?, cert: self.cert.clone()?, key: self.key.clone()? })
    }
}

/// Serves the simulated supplier as a plugin, to try a policy with one, or to compare your own with.
#[derive(Debug, Args)]
struct SimulateArgs {
    #[arg(long, value_name = "ENDPOINT", help = "Socket to listen on: unix:///path/to/socket")]
    listen: String,
    /// Cluster that it makes machines for
    #[arg(long, value_name = "NAME", default_value = "check")]
    cluster: String,
    /// File that says how the simulated markets behave
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
}

/// Carries `stoker supplier` out.
pub(super) async fn run(args: SupplierArgs) -> Result<Exit, CliError> {
    match args.command {
        SupplierCommand::Check(args) => check(args).await,
        SupplierCommand::Simulate(args) => simulate(args).await,
    }
}

/// How many machines are made.
const MACHINES: f64 = 2.0;
/// The share of an hour that they may live.
const SHARE: f64 = 1.0 / 6.0;

async fn check(args: CheckArgs) -> Result<Exit, CliError> {
    let plugin = connect(&args.endpoint, args.tls.files()).map_err(|error| CliError::Usage(error.to_string()))?;
    let asked = wire::DescribeRequest { stoker_version: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL };
    let answer = plugin.clone().describe(asked).await.map_err(|status| CliError::Failed {
        doing: format!("asking the plugin at {} what it is; look whether it runs there", args.endpoint),
        source: status.into(),
    })?;
    // What is wrong with its version is a finding, and no reason not to look at the rest.
    let described = Described::read_any_protocol(answer.into_inner())
        .map_err(|why| CliError::Usage(format!("the plugin at {}: {why}", args.endpoint)))?;
    let book = price_tables::prices(args.prices_dir.as_deref(), Clock::system().now())?;
    let market = match &args.market {
        Some(text) => market(text).ok_or_else(|| {
            CliError::Usage(format!(
                "{text:?} is no market: write CLOUD/REGION/ZONE/TYPE/CAPACITY, as `stoker offers` shows them"
            ))
        })?,
        None => cheapest(&book, &described).ok_or_else(|| {
            CliError::Usage("the price tables have no on-demand price in its regions: name a market with --market".to_owned())
        })?,
    };
    let price = price(&book, &market)
        .ok_or_else(|| CliError::Usage(format!("{market}: no price is known, so no budget can be kept")))?;
    let cost = dollars(price) * MACHINES * SHARE;
    if cost > args.budget {
        return Err(CliError::Usage(format!(
            "two machines of {market} for ten minutes cost ${cost:.2}, more than the budget of ${:.2}: raise --budget, or name a \
             cheaper --market",
            args.budget
        )));
    }
    let plan =
        check::Plan { cluster: "check".to_owned(), market: market.clone(), gone_within: Duration::from_secs(args.gone_within) };
    let Checked { rules: verdicts, left } = check::run(plugin, plan).await;
    let broken = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Broken(_))).count();
    let untried = verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::NotTried(_))).count();
    let mut text = format!("plugin {}, account {}, tried with two machines of {market}\n\n", described.name, described.account);
    for (rule, verdict) in &verdicts {
        let (word, why) = match verdict {
            Verdict::Kept => ("ok", ""),
            Verdict::Broken(why) => ("BROKEN", why.as_str()),
            Verdict::NotTried(why) => ("not tried", why.as_str()),
        };
        text.push_str(format!("{word:<10} {:<20} {why}", rule.as_str()).trim_end());
        text.push('\n');
    }
    if !left.is_empty() {
        text.extend(["\nleft running, end them by hand: ", &left.join(", "), "\n"]);
    }
    let kept = verdicts.len() - broken - untried;
    out::write(&format!("{text}\n{kept} rules kept, {broken} broken, {untried} not tried\n"))?;
    Ok(if broken + untried == 0 { Exit::Done } else { Exit::Failed })
}

fn market(text: &str) -> Option<Market> {
    let mut words = text.split('/');
    let place = Place {
        cloud: Cloud::new(words.next()?).ok()?,
        region: Region::new(words.next()?).ok()?,
        zone: ZoneId::new(words.next()?).ok()?,
        instance_type: InstanceType::new(words.next()?).ok()?,
    };
    let capacity_type = CapacityType::of(words.next()?)?;
    words.next().is_none().then_some(Market { place, capacity_type })
}

fn price(book: &PriceBook, market: &Market) -> Option<UsdPerHour> {
    match book.entry(market)? {
        Entry::Price(quote) => Some(quote.price),
        Entry::NoSignal(_) => None,
    }
}

/// In dollars, for people.
fn dollars(price: UsdPerHour) -> f64 {
    f64::from(u32::try_from(price.0).unwrap_or(u32::MAX)) / 1e6
}

fn cheapest(book: &PriceBook, described: &Described) -> Option<Market> {
    let sold = |market: &&Market| {
        let place = (market.place.cloud.clone(), market.place.region.clone());
        market.capacity_type == CapacityType::OnDemand && described.scopes.values().any(|regions| regions.contains(&place))
    };
    let priced =
        book.entries().map(|(market, _)| market).filter(sold).filter_map(|market| Some((price(book, market)?, market)));
    priced.min().map(|(_, market)| market.clone())
}

async fn simulate(args: SimulateArgs) -> Result<Exit, CliError> {
    let Some(path) = args.listen.strip_prefix("unix://").filter(|path| path.starts_with('/')) else {
        return Err(CliError::Usage(format!("{:?} is no socket: write unix:///path/to/socket", args.listen)));
    };
    let cluster = ClusterName::new(args.cluster).map_err(|error| CliError::Usage(error.to_string()))?;
    let clock = Clock::system();
    let book = price_tables::prices(None, clock.now())?;
    let config = price_tables::world_config(args.world.as_deref(), &book, clock.now())?;
    let simulated = Simulated::in_memory(cluster.clone(), config, &book, clock.clone()).map_err(CliError::other)?;
    let served = Served::new(Arc::new(simulated), cluster, clock, Served::scopes_of(&book));
    tracing::info!(listen = args.listen, "the simulated supplier is served as a plugin");
    served.listen(std::path::Path::new(path), told_to_stop()).await.map_err(|source| CliError::Failed {
        doing: format!("serving on {path}; look whether the folder is there, and nobody else listens"),
        source: source.into(),
    })?;
    Ok(Exit::Done)
}
