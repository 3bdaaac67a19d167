//! What is fuzzed: each target reads bytes as the service would, and asserts what must hold of the outcome.

mod expander;
pub(crate) mod journal;
mod kubernetes;
mod policy;
pub(crate) mod prices;
pub(crate) mod probes;
mod prometheus;
pub(crate) mod provider;
mod rpc;
pub(crate) mod service;

/// A target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Its name: that of its folder of inputs.
    pub(crate) name: &'static str,
    /// Reads an input; panics where something does not hold.
    pub(crate) run: fn(&[u8]),
}

/// All of them.
pub(crate) const ALL: [Target; 8] = [
    Target { name: "policy", run: policy::run },
    Target { name: "prices", run: prices::run },
    Target { name: "provider", run: provider::run },
    Target { name: "expander", run: expander::run },
    Target { name: "probes", run: probes::run },
    Target { name: "prometheus", run: prometheus::run },
    Target { name: "kubernetes", run: kubernetes::run },
    Target { name: "journal", run: journal::run },
];

/// The parts of an input that is a list of bytes: each after its length, in two bytes.
pub(crate) fn parts(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (part, after) = after.split_at(usize::from(u16::from_le_bytes(*length)).min(after.len()));
        rest = after;
        Some(part)
    })
}
