//! Which GPUs a model fits, and what a million of its tokens cost there: an estimate by the roofline.
//!
//! A pass over the model takes the longer of two times: its arithmetic at the GPUs' dense FLOPS of the precision, and reading its bytes
//! at their memory bandwidth. Generating reads every weight for each token and is bound by bandwidth; reading prompts and training reuse
//! a weight for many tokens and are bound by arithmetic. Times are whole picoseconds, money whole micro-dollars.

mod ask;
mod demand;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;

pub use ask::{Activations, Ask, AskError, Layers, Memory, Mode, Optimizer, Params, Precision, Tokens, Trained, Training};
pub use demand::Power;

use stoker_core::base::ids::GpuModel;
use stoker_core::base::units::{MiB, Milli, UsdMicros, UsdPerHour};
use stoker_core::market::offer::{ComputeCapability, GpuSpec, InstanceSpec, Market};
use stoker_core::market::price::PriceBook;

/// Share of a GPU's memory that a model may fill; the rest is the driver's, the runtime's and fragmentation's. vLLM's default.
pub const USABLE_PERCENT: u64 = 90;
/// Share of the data sheet's dense FLOPS that is reached: Llama 3 was trained at 38 to 43 % (its paper, §3.3).
pub const COMPUTE_PERCENT: u128 = 40;
/// Share of the data sheet's bandwidth that is reached while generating: 50 to 70 % are usual in inference benchmarks.
pub const BANDWIDTH_PERCENT: u128 = 60;
/// What is kept above the measured need, in percent: a replica may fail or a burst come. It is all that is
/// kept: 500 requests a second at 200 a replica take 3 replicas, and no fourth for a failure.
pub const HEADROOM_PERCENT: u128 = 20;

/// GPUs that are alike: model, memory of one as the node advertises it, and the share of a physical GPU that one is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// The model.
    pub model: GpuModel,
    /// Memory of one.
    pub memory: MiB,
    /// Thousandths of a physical GPU.
    pub share: Milli,
}

impl Card {
    fn of(spec: &InstanceSpec) -> Self {
        let share = Milli(spec.gpus.0.min(1000));
        Self { model: spec.gpu_model.clone(), memory: spec.memory_per_advertised_gpu(), share }
    }

    /// Bytes of one that a model can have.
    fn usable(&self) -> u64 {
        self.memory.bytes() / 100 * USABLE_PERCENT
    }

    /// How many hold `bytes`: a power of two, since a model is cut between heads.
    fn holding(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.usable().max(1)).next_power_of_two()
    }

    /// How many train: weights and their state are sharded over all of them, and each has whole sequences of its own, at least one.
    /// `None` where none of them holds even that.
    fn training(&self, memory: &Memory, batch: u64) -> Option<u64> {
        let state = memory.weights + memory.gradients + memory.optimizer;
        let of_one = memory.activations / batch;
        let holds = |gpus: &u64| {
            let of_own = of_one.saturating_mul(batch.div_ceil(*gpus));
            state.div_ceil(*gpus).saturating_add(of_own) <= self.usable()
        };
        (0..=16).map(|power| 1 << power).find(holds)
    }
}

/// What tokens are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Tokens of answers.
    Generate,
    /// Tokens of prompts.
    Prompt,
    /// Tokens turned to vectors.
    Embed,
    /// Tokens learned from.
    Train,
}

/// What a pass waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundBy {
    /// Arithmetic.
    Compute,
    /// Reading memory.
    Bandwidth,
}

/// How fast one replica works, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Speed {
    /// What it waits for.
    pub bound: BoundBy,
    /// Tokens a second of all its sequences together, in thousandths.
    pub tokens_per_second_milli: u64,
    /// What a million tokens cost.
    pub per_million: UsdMicros,
}

/// A model on GPUs of one kind, where that is cheapest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The GPUs.
    pub card: Card,
    /// So many a replica, all in one node.
    pub gpus: u32,
    /// Where the replicas cost least together.
    pub market: Market,
    /// Price of a node there.
    pub node: UsdPerHour,
    /// Replicas that a node holds.
    pub per_node: u32,
    /// Nodes to buy for the replicas asked for.
    pub nodes: u32,
    /// What is paid for these nodes: whole nodes, GPUs that no replica uses included.
    pub total: UsdPerHour,
    /// What is paid, per replica.
    pub replica: UsdPerHour,
    /// Speed by work; `None` where a figure of the GPU is unknown. Never empty; the first is what fits are ranked by.
    pub speeds: Vec<(Work, Option<Speed>)>,
}

/// Why a model does not fit GPUs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// No node has so many.
    #[error("needs {need} in one node, offers have at most {most}")]
    TooFew {
        /// GPUs needed.
        need: u64,
        /// GPUs of the largest node.
        most: u32,
    },
    /// It does not calculate in this precision.
    #[error("no {precision}: its compute capability is {has}, and {precision} needs {want}")]
    Lacks {
        /// The precision.
        precision: Precision,
        /// What it has.
        has: ComputeCapability,
        /// What is needed.
        want: ComputeCapability,
    },
    /// Each GPU trains on whole sequences.
    #[error("the activations of one sequence leave no room for the rest: train on shorter ones, or recompute activations")]
    Sequence,
    /// No source tells whether it calculates in this precision.
    #[error("it is unknown whether it has {0}")]
    Unknown(Precision),
}

/// What fits, what does not, and the memory that decides it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// Memory of one replica.
    pub memory: Memory,
    /// What fits, cheapest work first; without a known speed last.
    pub fits: Vec<Fit>,
    /// What does not, and why.
    pub misfits: Vec<(Card, Misfit)>,
}

/// Estimates so many replicas of `ask` on every kind of GPU that `offers` has, each at the offer whose
/// nodes cost least for all of them.
pub fn estimate(ask: &Ask, replicas: NonZeroU32, book: &PriceBook, offers: &[(&Market, UsdPerHour)]) -> Estimate {
    let memory = ask.memory();
    let mut cards: BTreeMap<Card, Vec<Sold<'_>>> = BTreeMap::new();
    for &(market, node) in offers {
        let Some(spec) = book.spec(&market.place.cloud, &market.place.instance_type) else { continue };
        cards.entry(Card::of(spec)).or_default().push(Sold { spec, market, node });
    }
    let mut estimate = Estimate { memory, fits: Vec::new(), misfits: Vec::new() };
    for (card, sold) in cards {
        let gpu = sold.first().and_then(|sold| book.gpu_of(sold.spec));
        match fit(ask, replicas, &memory, &card, gpu, &sold) {
            Ok(fit) => estimate.fits.push(fit),
            Err(why) => estimate.misfits.push((card, why)),
        }
    }
    estimate.fits.sort_by(|a, b| a.rank().cmp(&b.rank()));
    estimate
}

/// The same ask at each precision that the weights could be cut to, with the cheapest nodes that hold the
/// replicas.
pub fn quantized(
    ask: &Ask,
    replicas: NonZeroU32,
    book: &PriceBook,
    offers: &[(&Market, UsdPerHour)],
) -> Vec<(Ask, Memory, Option<Fit>)> {
    let at = |precision| {
        let ask = Ask { precision, ..*ask };
        let Estimate { memory, fits, .. } = estimate(&ask, replicas, book, offers);
        let cheapest = fits.into_iter().min_by(|a, b| (a.total, &a.card).cmp(&(b.total, &b.card)));
        (ask, memory, cheapest)
    };
    [Precision::Fp16, Precision::Fp8, Precision::Int8, Precision::Int4].map(at).into()
}

impl Fit {
    fn rank(&self) -> impl Ord + '_ {
        let cost = self.speeds.first().and_then(|(_, speed)| *speed).map(|speed| speed.per_million);
        (cost.is_none(), cost, self.total, &self.card)
    }
}

/// An offer of a kind of GPU.
struct Sold<'a> {
    spec: &'a InstanceSpec,
    market: &'a Market,
    /// Price of a node.
    node: UsdPerHour,
}

fn fit(
    ask: &Ask,
    replicas: NonZeroU32,
    memory: &Memory,
    card: &Card,
    spec: Option<&GpuSpec>,
    sold: &[Sold<'_>],
) -> Result<Fit, Misfit> {
    if let Some(want) = ask.precision.least_capability() {
        let has = spec.and_then(|spec| spec.compute_capability).ok_or(Misfit::Unknown(ask.precision))?;
        if has < want {
            return Err(Misfit::Lacks { precision: ask.precision, has, want });
        }
    }
    let need = match ask.mode {
        Mode::Finetune => card.training(memory, u64::from(ask.batch.get())).ok_or(Misfit::Sequence)?,
        Mode::Inference | Mode::Batch | Mode::Embedding => card.holding(memory.total()),
    };
    let most = sold.iter().map(|sold| sold.spec.advertised_gpus()).max().unwrap_or(0);
    let too_few = || Misfit::TooFew { need, most };
    let gpus = u32::try_from(need).map_err(|_| too_few())?;
    let cheapest = sold.iter().filter_map(|&Sold { spec, market, node }| {
        let per_node = spec.advertised_gpus().checked_div(gpus).filter(|n| *n > 0)?;
        let nodes = replicas.get().div_ceil(per_node);
        // Of equal totals the node with the lower price per replica, which has room for more.
        Some((node.times(nodes), node.per(per_node), market, node, per_node, nodes))
    });
    let (total, _, market, node, per_node, nodes) = cheapest.min().ok_or_else(too_few)?;
    let replica = total.per(replicas.get());
    let speeds = passes(ask, memory)
        .into_iter()
        .map(|(work, pass)| (work, spec.and_then(|spec| pass.speed(ask, spec, card, gpus, replica))))
        .collect();
    Ok(Fit { card: card.clone(), gpus, market: market.clone(), node, per_node, nodes, total, replica, speeds })
}

/// One pass over a model.
struct Pass {
    /// Tokens that come of it.
    tokens: u128,
    /// Arithmetic, in floating-point operations.
    flops: u128,
    /// Bytes read.
    bytes: u128,
}

/// The passes of a mode. A token takes a multiplication and an addition a parameter forward, and twice that backward; frozen weights
/// need only the half of it that passes the gradient on. Activations that are not kept are calculated forward once more.
fn passes(ask: &Ask, memory: &Memory) -> Vec<(Work, Pass)> {
    let (params, batch, tokens) = (u128::from(ask.params.get()), u128::from(ask.batch.get()), u128::from(ask.tokens()));
    let weights = u128::from(memory.weights);
    let read = Pass { tokens, flops: 2 * params * tokens, bytes: weights };
    match ask.mode {
        Mode::Inference | Mode::Batch => {
            let bytes = weights + u128::from(memory.kv_cache);
            vec![(Work::Generate, Pass { tokens: batch, flops: 2 * params * batch, bytes }), (Work::Prompt, read)]
        }
        Mode::Embedding => vec![(Work::Embed, read)],
        Mode::Finetune => {
            let again = if ask.training().activations == Activations::Recomputed { 2 } else { 0 };
            let flops = (if ask.is_frozen() { 4 } else { 6 } + again) * params * tokens;
            vec![(Work::Train, Pass { tokens, flops, bytes: u128::from(memory.total()) })]
        }
    }
}

impl Pass {
    /// `None` where the GPU's bandwidth, or its FLOPS in the precision that is calculated in, are unknown.
    fn speed(&self, ask: &Ask, spec: &GpuSpec, card: &Card, gpus: u32, replica: UsdPerHour) -> Option<Speed> {
        let gflops = match (ask.mode, ask.precision) {
            (Mode::Inference | Mode::Batch | Mode::Embedding, Precision::Fp8) => spec.fp8_gflops,
            // Training, and weights in integers, are calculated with in 16 bits.
            _ => spec.fp16_gflops,
        }?;
        // Giga and share (thousandths) and percent: 10¹² ps × 10³ × 10² ÷ 10⁹ = 10⁸. At most 8 × 2·10¹² × 2⁴⁰ × 10⁸ ≈ 2·10³³, far within
        // 128 bits.
        let shares = u128::from(gpus) * u128::from(card.share.0);
        let picoseconds = |units: u128, giga_per_second: u128, percent: u128| {
            let rate = giga_per_second * shares * percent;
            (rate > 0).then(|| (units * 100_000_000).div_ceil(rate).max(1))
        };
        let compute = picoseconds(self.flops, u128::from(gflops), COMPUTE_PERCENT)?;
        let reading = picoseconds(self.bytes, u128::from(spec.bandwidth_gb_s?), BANDWIDTH_PERCENT)?;
        let (bound, time) = if compute > reading { (BoundBy::Compute, compute) } else { (BoundBy::Bandwidth, reading) };
        let milli = self.tokens * 1_000_000_000_000_000 / time;
        // Price an hour × picoseconds × 10⁶ tokens ÷ (tokens × 3.6·10¹⁵ ps an hour), to the nearest micro-dollar.
        let divisor = self.tokens * 3_600_000_000;
        let price = u128::try_from(replica.0).ok()?;
        let micros = price.checked_mul(time).map(|sum| (sum + divisor / 2) / divisor);
        let per_million = micros.and_then(|micros| i64::try_from(micros).ok()).unwrap_or(i64::MAX);
        Some(Speed {
            bound,
            tokens_per_second_milli: u64::try_from(milli).unwrap_or(u64::MAX),
            per_million: UsdMicros(per_million),
        })
    }
}

/// Replicas for a measured need, with [`HEADROOM_PERCENT`] above it: ceil(need ÷ what one replica does × 1.2),
/// at least one. Both in the same unit; `None` where a replica does nothing or more are needed than can be
/// counted.
pub fn replicas(need: u64, one_does: u64) -> Option<NonZeroU32> {
    let with_headroom = u128::from(need) * (100 + HEADROOM_PERCENT);
    let replicas = with_headroom.div_ceil((u128::from(one_does) * 100).max(1)).max(1);
    u32::try_from(replicas).ok().filter(|_| one_does > 0).and_then(NonZeroU32::new)
}

/// What the estimate rests on, in words.
pub fn assumptions(ask: &Ask) -> Vec<String> {
    let Layers { layers, hidden, kv_width } = ask.layers();
    let mut list = vec![format!(
        "a dense transformer of {layers} layers of width {hidden}: parameters = 12 x layers x width^2, width = {} x layers",
        ask::WIDTH_PER_LAYER
    )];
    match ask.mode {
        Mode::Inference | Mode::Batch => {
            list.push(format!(
                "KV cache: 2 x 2 bytes x {layers} layers x {kv_width} (8 heads of 128) a token, every sequence at full context; \
                 models without grouped-query attention need {hidden} in place of {kv_width}"
            ));
            list.push(format!("activations and workspace: {} % of the weights", ask::WORKSPACE_PERCENT));
            list.push("generating reads all weights and the KV cache once for each token of the batch".to_owned());
        }
        Mode::Embedding => list.push(format!(
            "activations: {} bytes a token and unit of width, of one layer at a time; nothing is generated",
            ask::LAYER_ACTIVATION_BYTES
        )),
        Mode::Finetune => {
            let Training { trained: _, optimizer, activations } = ask.training();
            let bytes = 2 + ask::GRADIENT_BYTES + optimizer.bytes();
            list.push(if ask.is_frozen() {
                format!(
                    "weights stay as they are; adapters of {} % of the parameters are trained at {bytes} bytes each ({}, mixed precision)",
                    ask::ADAPTERS_PERCENT,
                    optimizer
                )
            } else {
                format!(
                    "every weight is trained at {bytes} bytes: 2 weight, 2 gradient, {} for {optimizer}; sharded over the node's GPUs, \
                     each with whole sequences of its own",
                    optimizer.bytes()
                )
            });
            let a_layer = ask::LAYER_ACTIVATION_BYTES;
            list.push(match activations {
                Activations::Recomputed => format!(
                    "activations: one 16-bit checkpoint a layer and {a_layer} bytes a token and unit of width of the layer recomputed, which \
                     takes one more pass forward; logits left out"
                ),
                Activations::Kept => {
                    format!(
                        "activations: {a_layer} bytes a token and unit of width of every layer, all kept; attention keeps no \
                         scores; logits left out"
                    )
                }
            });
        }
    }
    list.push(format!(
        "{USABLE_PERCENT} % of a GPU's memory is usable; a replica stays in one node, on a power of two of GPUs that share its \
         memory and work evenly"
    ));
    list.push(format!(
        "speed: the slower of arithmetic at {COMPUTE_PERCENT} % of dense FLOPS and reading at {BANDWIDTH_PERCENT} % of bandwidth; \
         attention's own arithmetic and traffic between GPUs left out"
    ));
    list
}
