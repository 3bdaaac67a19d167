//! What is asked to fit: a model, how it is run, and the memory that takes.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use stoker_core::base::text::quoted;
use stoker_core::base::units::scaled;
use stoker_core::market::offer::{ComputeCapability, GpuSpec};

/// Why a number of an ask cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Not a count at all.
    #[error("{} is not a number of {of}: write it like {like}", quoted(.text))]
    NotACount {
        /// What was written.
        text: String,
        /// What is counted.
        of: &'static str,
        /// An example.
        like: &'static str,
    },
    /// A count, but out of bounds.
    #[error("{} is out of range: give {least} to {most} {of}", quoted(.text))]
    OutOfBounds {
        /// What was written.
        text: String,
        /// What is counted.
        of: &'static str,
        /// The least allowed.
        least: &'static str,
        /// The most allowed.
        most: &'static str,
    },
    /// None of the words known.
    #[error("{} is not one of {words}", quoted(.text))]
    Word {
        /// What was written.
        text: String,
        /// The words.
        words: String,
    },
}

/// `text` as a decimal number before one of the `suffixes`, whose value is ten to that power; rounded to a whole number.
fn count(text: &str, suffixes: &[(char, usize)]) -> Option<u64> {
    let (number, places) = suffixes
        .iter()
        .find_map(|(suffix, places)| Some((text.strip_suffix(|c: char| c.eq_ignore_ascii_case(suffix))?, *places)))
        .unwrap_or((text, 0));
    scaled(number, places)
}

/// How many parameters a model has, from a million to two trillion (`2T`): none published is larger, and every sum of bytes below fits
/// 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Params(u64);

impl Params {
    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Params {
    type Err = AskError;

    /// Reads `7B`, `1.5B`, `350M`, `2T` or a plain number.
    fn from_str(text: &str) -> Result<Self, AskError> {
        let n = count(text, &[('M', 6), ('B', 9), ('T', 12)]).ok_or_else(|| AskError::NotACount {
            text: text.to_owned(),
            of: "parameters",
            like: "7B, 1.5B or 350M",
        })?;
        if !(1_000_000..=2_000_000_000_000).contains(&n) {
            return Err(AskError::OutOfBounds { text: text.to_owned(), of: "parameters", least: "1M", most: "2T" });
        }
        Ok(Self(n))
    }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, letter) = match self.0 {
            n if n >= 1_000_000_000_000 => (1_000_000_000_000, 'T'),
            n if n >= 1_000_000_000 => (1_000_000_000, 'B'),
            _ => (1_000_000, 'M'),
        };
        let hundredths = self.0 / (unit / 100);
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        f.pad(&format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.')))
    }
}

/// How many tokens a sequence has, prompt and answer together: from 1 to 16 Mi, above the longest context of any published model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Tokens(u32);

impl Tokens {
    /// The count.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl FromStr for Tokens {
    type Err = AskError;

    /// Reads `8k`, `1M` (a k is 1,024 and an M 1,024 k, as model cards mean them) or a plain number.
    fn from_str(text: &str) -> Result<Self, AskError> {
        let bounds = || AskError::OutOfBounds { text: text.to_owned(), of: "tokens", least: "1", most: "16M" };
        let units = [('k', 1 << 10), ('m', 1 << 20)];
        let (number, unit) = units
            .iter()
            .find_map(|(suffix, unit)| Some((text.strip_suffix(|c: char| c.eq_ignore_ascii_case(suffix))?, *unit)))
            .unwrap_or((text, 1_u64));
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(AskError::NotACount { text: text.to_owned(), of: "tokens", like: "8k or 8192" });
        }
        // Digits alone that do not fit are too many.
        let n = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(bounds)?;
        u32::try_from(n).ok().filter(|n| (1..=16 << 20).contains(n)).map(Self).ok_or_else(bounds)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every one, in declared order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word that it is written by.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = AskError;

            fn from_str(text: &str) -> Result<Self, AskError> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text).ok_or_else(|| AskError::Word {
                    text: text.to_owned(),
                    words: Self::ALL.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", "),
                })
            }
        }
    };
}

words! {
    /// How a model's weights are stored.
    Precision {
        /// Half precision: two bytes.
        Fp16 = "fp16",
        /// Brain floating point: two bytes; Ampere and later.
        Bf16 = "bf16",
        /// Eight-bit floating point: one byte; Ada and later.
        Fp8 = "fp8",
        /// Eight-bit integers, computed with in 16 bits.
        Int8 = "int8",
        /// Four-bit integers, computed with in 16 bits.
        Int4 = "int4",
    }
}

impl Precision {
    /// Bits of one weight.
    const fn bits(self) -> u64 {
        match self {
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp8 | Self::Int8 => 8,
            Self::Int4 => 4,
        }
    }

    /// Least compute capability that calculates in it: bf16 came with Ampere (8.0), fp8 with Ada.
    pub(super) const fn least_capability(self) -> Option<ComputeCapability> {
        match self {
            Self::Bf16 => Some(ComputeCapability { major: 8, minor: 0 }),
            Self::Fp8 => Some(GpuSpec::LEAST_FP8),
            Self::Fp16 | Self::Int8 | Self::Int4 => None,
        }
    }
}

words! {
    /// What is done with the model.
    Mode {
        /// Answers for people who wait: few sequences at once.
        Inference = "inference",
        /// Answers that can wait: many sequences at once.
        Batch = "batch",
        /// Texts to vectors: prompts are read and nothing is generated.
        Embedding = "embedding",
        /// Fine-tuning, of all weights or of adapters on frozen ones.
        Finetune = "finetune",
    }
}

words! {
    /// How training keeps its state.
    Optimizer {
        /// Adam, momentum and variance in 32 bits.
        Adam = "adam",
        /// Adam, both in 8 bits.
        Adam8bit = "adam8bit",
        /// Stochastic gradient descent with momentum.
        Sgd = "sgd",
    }
}

impl Optimizer {
    /// Bytes a trained parameter: its 32-bit copy, and 4 and 4 (Rajbhandari et al. 2019), 1 and 1 (Dettmers et al. 2021), or 4.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Adam => 12,
            Self::Adam8bit => 6,
            Self::Sgd => 8,
        }
    }
}

words! {
    /// What training does with activations between the passes forward and backward.
    Activations {
        /// Of each layer only its input is kept, and the rest calculated again: activation checkpointing.
        Recomputed = "recomputed",
        /// All are kept.
        Kept = "kept",
    }
}

words! {
    /// What training changes.
    Trained {
        /// Every weight.
        All = "all",
        /// Adapters on frozen weights (low rank).
        Adapters = "adapters",
    }
}

impl Precision {
    /// What is trained where nothing is said: below 16 bits, weights cannot take a step of the optimizer.
    pub const fn trained(self) -> Trained {
        if self.bits() < 16 { Trained::Adapters } else { Trained::All }
    }
}

impl Mode {
    /// Sequences at once where none are asked for. One answer to one person is the slowest and most expensive case; 32 is where a batch of
    /// answers still fits beside the weights on most GPUs.
    pub const fn default_batch(self) -> u16 {
        match self {
            Self::Inference | Self::Embedding | Self::Finetune => 1,
            Self::Batch => 32,
        }
    }
}

/// A model and how it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ask {
    /// Parameters; a dense transformer is assumed.
    pub params: Params,
    /// How the weights are stored.
    pub precision: Precision,
    /// Tokens of one sequence.
    pub context: Tokens,
    /// Sequences at once.
    pub batch: std::num::NonZeroU16,
    /// What is done.
    pub mode: Mode,
    /// How it is trained; counts for fine-tuning alone.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
}

/// How a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Training {
    /// What is trained. Weights below 16 bits are not, whatever this says.
    pub trained: Trained,
    /// How its state is kept.
    pub optimizer: Optimizer,
    /// What becomes of activations.
    pub activations: Activations,
}

impl Default for Training {
    /// What most do.
    fn default() -> Self {
        Self { trained: Trained::All, optimizer: Optimizer::Adam, activations: Activations::Recomputed }
    }
}

/// The shape of a transformer, by rule from its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layers {
    /// Layers.
    pub layers: u64,
    /// Width of each.
    pub hidden: u64,
    /// Width of a layer's keys, and of its values.
    pub kv_width: u64,
}

/// Width of a layer's keys: eight heads of 128, as Llama 3, Mistral and Qwen have at every size. Models from before grouped-query
/// attention keep the whole hidden width, up to eight times as much.
pub(super) const KV_WIDTH: u64 = 1024;
/// Hidden width over layers; 128 is Llama 7B's and 13B's and GPT-3's own.
pub(super) const WIDTH_PER_LAYER: u64 = 128;
/// Bytes of a trained parameter's gradient in mixed precision (Rajbhandari et al. 2019).
pub(super) const GRADIENT_BYTES: u64 = 2;
/// Share of the parameters that adapters on frozen weights train.
pub(super) const ADAPTERS_PERCENT: u64 = 1;
/// Activations and workspace of generating, as a share of the weights.
pub(super) const WORKSPACE_PERCENT: u64 = 5;
/// Bytes of activations of one layer, per token and hidden unit, where attention keeps no scores (Korthikanti et al. 2022).
pub(super) const LAYER_ACTIVATION_BYTES: u64 = 34;

/// Memory in bytes, by what takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Weights, and adapters on them.
    pub weights: u64,
    /// Gradients.
    pub gradients: u64,
    /// The optimizer's state.
    pub optimizer: u64,
    /// Keys and values of the sequences under way.
    pub kv_cache: u64,
    /// Activations and workspace.
    pub activations: u64,
}

impl Memory {
    /// All of it.
    pub const fn total(&self) -> u64 {
        let fixed = self.weights + self.gradients + self.optimizer + self.kv_cache;
        fixed.saturating_add(self.activations)
    }
}

impl Ask {
    /// A layer of width h has about 12 h² parameters (4 of attention, 8 of the feed-forward part), so with h = 128 layers each:
    /// parameters = 12 × 128² × layers³. Rounded to the nearest layer, at least one.
    pub fn layers(&self) -> Layers {
        // Nearest: the first n with (n + ½)³ × 12 × 128² above the parameters; the halves are doubled away.
        let above = |n: &u64| (2 * n + 1).pow(3) * (12 * WIDTH_PER_LAYER * WIDTH_PER_LAYER / 8) > self.params.get();
        let layers = (1..=1_000).find(above).unwrap_or(1_000);
        let hidden = layers * WIDTH_PER_LAYER;
        Layers { layers, hidden, kv_width: hidden.min(KV_WIDTH) }
    }

    /// Whether only adapters are trained.
    pub fn is_frozen(&self) -> bool {
        [self.training().trained, self.precision.trained()].contains(&Trained::Adapters)
    }

    /// How it is trained, where it is.
    pub(super) fn training(&self) -> Training {
        self.training.unwrap_or_default()
    }

    /// Tokens in all sequences at once.
    pub(super) fn tokens(&self) -> u64 {
        u64::from(self.context.get()) * u64::from(self.batch.get())
    }

    /// What it needs in memory, over all GPUs of one replica.
    pub fn memory(&self) -> Memory {
        let Layers { layers, hidden, kv_width } = self.layers();
        let (params, tokens) = (self.params.get(), self.tokens());
        let weights = params * self.precision.bits() / 8;
        let one_layer = LAYER_ACTIVATION_BYTES * hidden * tokens;
        match self.mode {
            Mode::Inference | Mode::Batch => Memory {
                weights,
                gradients: 0,
                optimizer: 0,
                // Keys and values, two bytes each whatever the weights' precision: inference servers' default.
                kv_cache: 2 * 2 * layers * kv_width * tokens,
                activations: weights * WORKSPACE_PERCENT / 100,
            },
            Mode::Embedding => Memory { weights, gradients: 0, optimizer: 0, kv_cache: 0, activations: one_layer },
            Mode::Finetune => {
                let trained = if self.is_frozen() { params * ADAPTERS_PERCENT / 100 } else { params };
                let adapters = if self.is_frozen() { trained * 2 } else { 0 };
                Memory {
                    weights: weights + adapters,
                    gradients: trained * GRADIENT_BYTES,
                    optimizer: trained * self.training().optimizer.bytes(),
                    kv_cache: 0,
                    activations: match self.training().activations {
                        // One 16-bit checkpoint a layer, and all of the layer that is being recomputed.
                        Activations::Recomputed => 2 * layers * hidden * tokens + one_layer,
                        Activations::Kept => layers.saturating_mul(one_layer),
                    },
                }
            }
        }
    }
}
