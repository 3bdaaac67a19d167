//! What a workload was measured to need of a GPU, and what a part of another one has to give, by the same two roofs: arithmetic and
//! bandwidth. Both are taken from the data sheets, so that only their ratios count.

use serde::Serialize;

use stoker_core::base::units::{MiB, Percent};
use stoker_core::facts::reading::Permille;
use stoker_core::market::offer::GpuSpec;
use stoker_core::market::sharing::Part;

/// What something can do, or must be able to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Power {
    /// Dense FP16 arithmetic, in millions of operations a second.
    pub megaflops: u128,
    /// Memory bandwidth, in MB/s.
    pub mb_s: u128,
    /// Memory, in bytes.
    pub memory: u128,
}

impl Power {
    /// That of a part of a GPU with so much memory; `None` where a figure of the GPU is unknown.
    pub fn of(gpu: &GpuSpec, compute: Part, bandwidth: Part, memory: MiB) -> Option<Self> {
        let part =
            |figure: u64, Part { of, whole }: Part| u128::from(figure) * 1_000 * u128::from(of) / u128::from(whole.max(1));
        Some(Self {
            megaflops: part(gpu.fp16_gflops?, compute),
            mb_s: part(gpu.bandwidth_gb_s?.into(), bandwidth),
            memory: u128::from(memory.bytes()),
        })
    }

    /// What was used of it, with so much on top, each rounded up. Where no bandwidth was measured, as much of it is taken to be used as of
    /// the arithmetic.
    #[must_use]
    pub fn used(&self, compute: Permille, bandwidth: Option<Permille>, memory: u64, headroom: Percent) -> Self {
        let with = 100 + u128::from(headroom.0);
        let share = |all: u128, level: Permille| (all * u128::from(level.get()) * with).div_ceil(100_000);
        Self {
            megaflops: share(self.megaflops, compute),
            mb_s: share(self.mb_s, bandwidth.unwrap_or(compute)),
            memory: (u128::from(memory) * with).div_ceil(100),
        }
    }

    /// The most of both, figure by figure.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            megaflops: self.megaflops.max(other.megaflops),
            mb_s: self.mb_s.max(other.mb_s),
            memory: self.memory.max(other.memory),
        }
    }

    /// So many of it together.
    #[must_use]
    pub fn times(self, n: u32) -> Self {
        let n = u128::from(n);
        Self { megaflops: self.megaflops * n, mb_s: self.mb_s * n, memory: self.memory * n }
    }

    /// Whether it is within what another has, figure by figure.
    pub const fn within(&self, has: &Self) -> bool {
        self.megaflops <= has.megaflops && self.mb_s <= has.mb_s && self.memory <= has.memory
    }
}
