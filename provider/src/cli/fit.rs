//! `stoker fit`: which GPUs a model fits, how many, and what its tokens would cost there: an estimate.

use std::fmt::Write as _;
use std::num::{NonZeroU16, NonZeroU32};
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde::Serialize;
use stoker_advice::fit::{
    self, Activations, Ask, BoundBy, Card, Fit, Layers, Memory, Mode, Optimizer, Params, Precision, Speed, Tokens, Trained,
    Training, Work,
};
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{Cloud, GpuModel, InstanceType, Region, ZoneId};
use stoker_core::base::text::quoted;
use stoker_core::base::units::{UsdMicros, UsdPerHour, scaled};
use stoker_core::market::offer::{CapacityType, Market, Place};
use stoker_core::market::price::{Quote, usable};

use super::args::{MarketArgs, NowArg, OutputArg, whole};
use super::candidates::{QuoteRow, Sources};
use super::exit::{CliError, Exit, NotFound};
use super::offers::{OfferFilter, gib, tables};
use super::out::{self, Money};
use stoker_service::price_tables::PriceTables;
use stoker_service::print::{count, paragraph, table};

/// Estimates which GPUs a model fits, how many, what its tokens cost there, and what smaller weights would allow.
///
/// Prices are those of whole nodes: a replica that is alone on a node pays for all of it. On-demand offers count where no capacity type is named. It is an estimate from data sheets, whose assumptions are printed: measure
/// before you rely on it.
#[derive(Debug, Args)]
pub(super) struct FitArgs {
    /// Parameters of the model, e.g. 7B, 1.5B or 350M
    #[arg(long, value_name = "N")]
    params: Params,
    /// How its weights are stored
    #[arg(long, value_name = "PRECISION", default_value = "fp16", value_parser = words::<Precision>(Precision::ALL.iter().map(|p| p.as_str())))]
    precision: Precision,
    /// Tokens of one sequence, prompt and answer together, e.g. 8k
    #[arg(long, value_name = "TOKENS")]
    context: Tokens,
    /// Sequences at once [default: 1; 32 for batch]
    #[arg(long, value_name = "N", value_parser = whole(NonZeroU16::MIN..), allow_negative_numbers = true)]
    batch: Option<NonZeroU16>,
    /// What is done: answers for people who wait, answers that can wait, texts to vectors, or fine-tuning
    #[arg(long, value_name = "MODE", default_value = "inference", value_parser = words::<Mode>(Mode::ALL.iter().map(|m| m.as_str())))]
    mode: Mode,
    /// What fine-tuning trains: all weights, or adapters on frozen ones, as `LoRA` does [default: all at 16 bits, adapters below]
    #[arg(long, value_name = "WHAT", value_parser = words::<Trained>(Trained::ALL.iter().map(|t| t.as_str())))]
    trained: Option<Trained>,
    /// How fine-tuning keeps its state: Adam in 32 or 8 bits, or momentum alone [default: adam]
    #[arg(long, value_name = "OPTIMIZER", value_parser = words::<Optimizer>(Optimizer::ALL.iter().map(|o| o.as_str())))]
    optimizer: Option<Optimizer>,
    /// Whether fine-tuning calculates activations again (checkpointing: slower by a third, with adapters by a half) or keeps them [default: recomputed]
    #[arg(long, value_name = "HOW", value_parser = words::<Activations>(Activations::ALL.iter().map(|a| a.as_str())))]
    activations: Option<Activations>,
    /// Requests a second to serve, as measured at the peak: the need and 20 % above it set how many replicas, and no spare is kept on top
    #[arg(long, value_name = "N", requires = "per_replica_qps", value_parser = qps, allow_negative_numbers = true)]
    qps: Option<u64>,
    /// Requests a second that one replica serves, as measured
    #[arg(long, value_name = "N", requires = "qps", value_parser = qps, allow_negative_numbers = true)]
    per_replica_qps: Option<u64>,
    #[command(flatten)]
    filter: OfferFilter,
    #[command(flatten)]
    markets: MarketArgs,
    #[command(flatten)]
    output: OutputArg,
    #[command(flatten)]
    now: NowArg,
}

/// Reads one of a set of words; clap lists them in help and in errors.
fn words<T>(all: impl Iterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = fit::AskError> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.collect::<Vec<_>>()).try_map(|word| word.parse())
}

/// A rate of requests in millionths of one a second.
fn qps(text: &str) -> Result<u64, String> {
    scaled(text, 6)
        .filter(|micros| *micros > 0)
        .ok_or_else(|| format!("{} is not a rate greater than zero: write it like 120 or 0.5", quoted(text)))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FitReport {
    at: Timestamp,
    /// Always true: data sheets and rules of thumb, no measurement.
    estimate: bool,
    asked: Ask,
    layers: Layers,
    memory: MemoryRow,
    /// Replicas that are priced: one, or those for the rate asked for, with headroom.
    replicas: u32,
    #[serde(skip)]
    rate: Option<[u64; 2]>,
    /// Cheapest work first.
    fits: Vec<FitRow>,
    misfits: Vec<MisfitRow>,
    #[serde(rename = "quantised")]
    quantized: Vec<QuantizedRow>,
    assumptions: Vec<String>,
}

/// Memory of one replica in bytes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MemoryRow {
    total: u64,
    #[serde(flatten)]
    parts: Memory,
}

impl From<Memory> for MemoryRow {
    fn from(parts: Memory) -> Self {
        Self { total: parts.total(), parts }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CardRow {
    gpu_model: GpuModel,
    /// Memory of one advertised GPU.
    gpu_memory_mib: u64,
}

impl From<&Card> for CardRow {
    fn from(card: &Card) -> Self {
        Self { gpu_model: card.model.clone(), gpu_memory_mib: card.memory.0 }
    }
}

impl CardRow {
    fn name(&self) -> String {
        format!("{} {}", self.gpu_model, gib(self.gpu_memory_mib))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FitRow {
    #[serde(flatten)]
    card: CardRow,
    /// GPUs of one replica.
    gpus: u32,
    /// Where the replicas cost least.
    cloud: Cloud,
    region: Region,
    zone: ZoneId,
    instance_type: InstanceType,
    capacity_type: CapacityType,
    per_node: Money,
    quote: QuoteRow,
    replicas_per_node: u32,
    /// Nodes to buy for all replicas.
    nodes: u32,
    /// What these nodes cost.
    total: Money,
    /// The same, per replica.
    per_replica: Money,
    work: Vec<WorkRow>,
    #[serde(skip)]
    shown: [UsdPerHour; 2],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkRow {
    tokens: Work,
    /// `None` where a figure of the GPU is unknown.
    speed: Option<SpeedRow>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedRow {
    bound_by: BoundBy,
    per_second_milli: u64,
    per_million: Money,
    #[serde(skip)]
    shown: UsdMicros,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MisfitRow {
    #[serde(flatten)]
    card: CardRow,
    reason: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct QuantizedRow {
    precision: Precision,
    memory: MemoryRow,
    /// The cheapest nodes that hold the replicas; `None` where none does.
    cheapest: Option<FitRow>,
}

/// Carries the command out.
pub(super) fn run(args: &FitArgs) -> Result<Exit, CliError> {
    let options = [
        ("--trained", args.trained.is_some()),
        ("--optimizer", args.optimizer.is_some()),
        ("--activations", args.activations.is_some()),
    ];
    if let Some((option, _)) = options.into_iter().find(|(_, is_given)| *is_given && args.mode != Mode::Finetune) {
        return Err(CliError::Usage(format!("{option} is of fine-tuning: give --mode finetune, or leave it out")));
    }
    if args.trained == Some(Trained::All) && args.precision.trained() != Trained::All {
        let why = format!(
            "--trained all: weights of {} cannot take the steps of an optimizer: give --precision fp16 or bf16, or train adapters",
            args.precision
        );
        return Err(CliError::Usage(why));
    }
    if args.mode == Mode::Finetune && args.qps.is_some() {
        return Err(CliError::Usage("--qps is of serving: leave it out of --mode finetune".to_owned()));
    }
    let now = args.now.now();
    let price_tables = PriceTables::load(args.markets.prices_dir.as_deref(), args.markets.world.as_deref(), now)?;
    let (book, place) = (&price_tables.prices, tables(&args.markets));
    args.filter.check(book, &place)?;
    let wanted = book.entries().filter(|(market, _)| {
        let spec = book.spec(&market.place.cloud, &market.place.instance_type).map(AsRef::as_ref);
        (args.filter.names_capacity_type() || market.capacity_type == CapacityType::OnDemand)
            && args.filter.wants(&market.place.cloud, &market.place.region, market.capacity_type, spec)
    });
    let priced = wanted
        .filter_map(|(market, _)| Some((market.clone(), usable(price_tables.entry(market).as_ref(), Wall(now)).ok()?.clone())));
    let reserved = args.filter.reserved(book).map(|(market, _, quote)| (market, quote));
    let priced: Vec<(Market, Quote)> = priced.chain(reserved).collect();
    if priced.is_empty() {
        let cure = Some("widen the filters, or run `stoker offers --all` to include offers without a price".to_owned());
        return Err(CliError::NotFound(NotFound { what: "matching offer", name: String::new(), place, cure }));
    }
    let offers: Vec<_> = priced.iter().map(|(market, quote)| (market, quote.price)).collect();
    let ask = Ask {
        params: args.params,
        precision: args.precision,
        context: args.context,
        batch: args.batch.or_else(|| NonZeroU16::new(args.mode.default_batch())).unwrap_or(NonZeroU16::MIN),
        mode: args.mode,
        training: (args.mode == Mode::Finetune).then(|| Training {
            trained: args.trained.unwrap_or(args.precision.trained()),
            optimizer: args.optimizer.unwrap_or(Optimizer::Adam),
            activations: args.activations.unwrap_or(Activations::Recomputed),
        }),
    };
    let rate = args.qps.zip(args.per_replica_qps);
    let replicas = rate.map_or(Some(NonZeroU32::MIN), |(need, one_does)| fit::replicas(need, one_does));
    let replicas = replicas.ok_or_else(|| {
        CliError::Usage("--qps needs more than four billion replicas of --per-replica-qps: check both".to_owned())
    })?;
    let row = |fit: Fit| {
        // A market has a reserved rate for each term.
        let of = |(market, quote): &&(Market, Quote)| *market == fit.market && quote.price == fit.node;
        let quote = priced.iter().find(of).map(|(_, quote)| QuoteRow::of(quote, now));
        Some(FitRow::of(fit, quote?))
    };
    let estimate = fit::estimate(&ask, replicas, book, &offers);
    let report = FitReport {
        at: now,
        estimate: true,
        asked: ask,
        layers: ask.layers(),
        memory: estimate.memory.into(),
        replicas: replicas.get(),
        rate: rate.map(|(need, one_does)| [need, one_does]),
        fits: estimate.fits.into_iter().filter_map(row).collect(),
        misfits: estimate.misfits.iter().map(|(card, why)| MisfitRow { card: card.into(), reason: why.to_string() }).collect(),
        quantized: fit::quantized(&ask, replicas, book, &offers)
            .into_iter()
            .map(|(ask, memory, fit)| QuantizedRow {
                precision: ask.precision,
                memory: memory.into(),
                cheapest: fit.and_then(row),
            })
            .collect(),
        assumptions: fit::assumptions(&ask),
    };
    out::print(args.output.format, &report, FitReport::table)?;
    Ok(if report.fits.is_empty() { Exit::Short } else { Exit::Done })
}

impl FitRow {
    fn of(fit: Fit, quote: QuoteRow) -> Self {
        let Market { place: Place { cloud, region, zone, instance_type }, capacity_type } = fit.market;
        Self {
            card: (&fit.card).into(),
            gpus: fit.gpus,
            per_node: fit.node.into(),
            quote,
            replicas_per_node: fit.per_node,
            nodes: fit.nodes,
            total: fit.total.into(),
            per_replica: fit.replica.into(),
            work: fit.speeds.into_iter().map(|(tokens, speed)| WorkRow { tokens, speed: speed.map(SpeedRow::of) }).collect(),
            shown: [fit.total, fit.replica],
            cloud,
            region,
            zone,
            instance_type,
            capacity_type,
        }
    }

    /// `2 x A100 80G`.
    fn gpus(&self) -> String {
        format!("{} x {}", self.gpus, self.card.name())
    }

    /// `aws/use1-az1`.
    fn place(&self) -> String {
        format!("{}/{}", self.cloud, self.zone)
    }

    fn cells(&self, sources: &mut Sources) -> Vec<String> {
        let dash = || "-".to_owned();
        let mut cells = vec![self.gpus(), self.instance_type.to_string(), self.place(), self.nodes.to_string()];
        cells.extend(self.shown.map(|price| price.to_string()));
        for (at, work) in self.work.iter().enumerate() {
            if at == 0 {
                cells.push(work.speed.as_ref().map_or_else(dash, |speed| per_second(speed.per_second_milli)));
            }
            cells.push(work.speed.as_ref().map_or_else(dash, |speed| format!("{:#}", speed.shown)));
        }
        cells.push(format!("{} {}", self.quote.kind_and_age(), sources.mark(&self.quote.source)));
        cells
    }
}

impl SpeedRow {
    fn of(speed: Speed) -> Self {
        Self {
            bound_by: speed.bound,
            per_second_milli: speed.tokens_per_second_milli,
            per_million: speed.per_million.into(),
            shown: speed.per_million,
        }
    }
}

/// Whole tokens a second, or tenths below a hundred.
fn per_second(milli: u64) -> String {
    if milli < 100_000 { format!("{}.{}", milli / 1_000, milli % 1_000 / 100) } else { (milli / 1_000).to_string() }
}

/// Millionths as the number that was given: `120` or `0.5`.
fn shortest(micros: u64) -> String {
    let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
    let text = format!("{whole}.{part:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes as people name them: `15.8 GB`, a GB being 10^9 bytes.
fn gb(bytes: u64) -> String {
    let tenths = bytes / 100_000_000 + u64::from(bytes % 100_000_000 >= 50_000_000);
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

impl FitReport {
    fn table(&self) -> String {
        let Ask { params, precision, context, batch, mode, .. } = &self.asked;
        let sequences = count(batch.get(), "sequence");
        let mut text = format!(
            "An estimate: {params} parameters in {precision}, {sequences} of {} at once, {mode}\n",
            count(context.get(), "token")
        );
        text += &paragraph("memory of a replica:", &self.memory.in_words());
        text += &paragraph("replicas:", &self.replicas_in_words());
        text.push('\n');
        let mut sources = Sources::default();
        text += &self.fits_table(&mut sources);
        let misfits: Vec<_> = self.misfits.iter().map(|row| format!("{}: {}", row.card.name(), row.reason)).collect();
        if !misfits.is_empty() {
            text += &paragraph("does not fit:", &misfits.join("; "));
        }
        text.push('\n');
        text += &self.quantized_table();
        if self.asked.mode == Mode::Finetune {
            text += &paragraph("note:", "below 16 bits weights stay as they are, and adapters are trained");
        }
        text.push('\n');
        for assumption in &self.assumptions {
            text += &paragraph("assumed:", assumption);
        }
        text + &sources.legend()
    }

    /// `3: 500 / 200 x 1.2, rounded up; …`.
    fn replicas_in_words(&self) -> String {
        let Some([need, one_does]) = self.rate else {
            return "1; --qps and --per-replica-qps say how many a load takes".to_owned();
        };
        let [need, one_does] = [need, one_does].map(shortest);
        format!(
            "{}: {need} / {one_does} and {} % on top, rounded up; no spare is kept beyond that",
            self.replicas,
            fit::HEADROOM_PERCENT
        )
    }

    fn fits_table(&self, sources: &mut Sources) -> String {
        if self.fits.is_empty() {
            return "no matching offer has room for it in one node\n".to_owned();
        }
        let mut header = vec!["GPUS", "TYPE", "ZONE", "NODES", "$/H IN ALL", "$/REPLICA-H"];
        header.extend_from_slice(match self.asked.mode {
            Mode::Inference | Mode::Batch => &["OUT/S", "1M-OUT", "1M-IN"],
            Mode::Embedding | Mode::Finetune => &["TOKENS/S", "1M-TOKENS"],
        });
        let numbers = header.get(3..).unwrap_or_default().to_vec();
        header.push("PRICE SOURCE");
        table(&header, &numbers, self.fits.iter().map(|fit| fit.cells(sources)).collect())
    }

    fn quantized_table(&self) -> String {
        let rows = self.quantized.iter().map(|row| {
            let mut cells = vec![row.precision.to_string(), gb(row.memory.total)];
            cells.extend(row.cheapest.as_ref().map_or_else(
                || [(); 4].map(|()| "-".to_owned()),
                |fit| [fit.gpus(), fit.shown[0].to_string(), fit.instance_type.to_string(), fit.place()],
            ));
            cells
        });
        table(&["WEIGHTS", "MEMORY", "CHEAPEST", "$/H IN ALL", "TYPE", "ZONE"], &["MEMORY", "$/H IN ALL"], rows.collect())
    }
}

impl MemoryRow {
    /// `15.8 GB: weights 14.0 GB, KV cache 1.1 GB, activations 0.7 GB`.
    fn in_words(&self) -> String {
        let Memory { weights, gradients, optimizer, kv_cache, activations } = self.parts;
        let parts = [
            ("weights", weights),
            ("gradients", gradients),
            ("optimizer", optimizer),
            ("KV cache", kv_cache),
            ("activations", activations),
        ];
        let mut text = gb(self.total);
        for (at, (name, bytes)) in parts.into_iter().filter(|(_, bytes)| *bytes > 0).enumerate() {
            let _ = write!(text, "{} {name} {}", if at == 0 { ":" } else { "," }, gb(bytes));
        }
        text
    }
}
