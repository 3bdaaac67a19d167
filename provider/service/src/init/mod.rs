//! A first policy, drafted from what a cluster has: its GPU Nodes, its Karpenter `NodePools`, or its GPU pods.
//!
//! [`read`] lists what there is and changes nothing. The rest is a function of what was read: [`draft`] makes pools of it, takes out
//! what the rules of a policy refuse, sees by the groups of the catalogue which pods could run where, and writes all of it with
//! comments. Each removal, and each pod that could run nowhere, is a comment.

mod cluster;
mod draft;
mod karpenter;
mod land;
mod nodes;
mod pods;
mod read;
mod sound;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use stoker_core::base::ids::{Cloud, ClusterName, IdError, SupplierName};
use stoker_core::catalogue::Catalogue;
use stoker_core::facts::supply::MarketFacts;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::supplier::{KARPENTER, SIMULATED, SupplierKind};

pub use cluster::Cluster;
pub use karpenter::allow;
pub use read::{ReadError, read};

use crate::policy_file;
use crate::yaml::Faults;

/// What a policy is drafted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Karpenter's `NodePools`.
    Karpenter,
    /// GPU Nodes.
    Nodes,
    /// Pods that ask for GPUs.
    Pods,
}

impl Source {
    /// The option that chooses it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Karpenter => "--from-karpenter",
            Self::Nodes => "--from-nodes",
            Self::Pods => "--from-pods",
        }
    }
}

/// A policy, and how much of the cluster is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drafted {
    /// The policy file.
    pub text: String,
    /// Its pools.
    pub pools: usize,
    /// GPU pods of the cluster.
    pub pods: usize,
    /// Those that could run in no pool.
    pub nowhere: usize,
}

/// Why no policy could be drafted.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// There is nothing to draft it from.
    #[error("no {what} in the cluster: {cure}")]
    Nothing {
        /// What there is none of.
        what: &'static str,
        /// What there was, and why it is not in the policy.
        left_out: Vec<String>,
        /// What to do about it.
        cure: &'static str,
    },
    /// The cluster cannot be called that.
    #[error("the cluster's name, --cluster, {0}")]
    Name(String),
    /// A name of the product itself is none.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The draft is no policy: a fault of this program.
    #[error("internal error: the drafted policy does not hold; please report it with these lines\n{0}")]
    Unsound(Faults),
    /// The file does not say what was drafted: a fault of this program.
    #[error("internal error: the drafted policy reads back as another one; please report it")]
    Unlike,
}

/// Drafts a policy for a cluster.
///
/// # Errors
/// See [`InitError`].
pub fn draft(
    source: Source,
    name: &ClusterName,
    cluster: &Cluster,
    book: &PriceBook,
    now: Timestamp,
) -> Result<Drafted, InitError> {
    let (mut drafts, mut notes) = match source {
        Source::Karpenter => karpenter::drafts(cluster, book),
        Source::Nodes => nodes::drafts(cluster, book),
        Source::Pods => pods::drafts(cluster, book),
    };
    draft::name_apart(&mut drafts);
    let policy = sound::sound(source, name, &mut drafts, &mut notes, book)?;
    let catalogue = Catalogue::derive(&Arc::new(policy), book, &suppliers(source, cluster, book)?);
    let landing = land::land(cluster, &catalogue, now);
    for (draft, pods) in drafts.iter_mut().zip(&landing.here) {
        draft.settle_limit(pods.iter().filter(|pod| !pod.is_bound).count());
    }
    let raw = sound::policy(source, name, &drafts);
    let text = text::policy(source, &raw, &drafts, &notes, &landing);
    let read = policy_file::parse("the drafted policy", &text, Some(book)).map_err(InitError::Unsound)?;
    // What was written is what was drafted, limits and all.
    if stoker_core::policy::Policy::try_from_raw(&raw).ok() != Some(read) {
        return Err(InitError::Unlike);
    }
    let nowhere = landing.nowhere.values().map(Vec::len).sum();
    Ok(Drafted { text, pools: drafts.len(), pods: cluster.pods.len(), nowhere })
}

/// Who would make the nodes: nobody is asked here, so it is taken to make all that the policy would have it make.
fn suppliers(source: Source, cluster: &Cluster, book: &PriceBook) -> Result<BTreeMap<SupplierName, MarketFacts>, InitError> {
    let (name, labels_capacity_type) = match source {
        Source::Karpenter => (KARPENTER, SupplierKind::Karpenter.labels_capacity_type()),
        Source::Nodes | Source::Pods => (SIMULATED, false),
    };
    let aws = Cloud::new("aws")?;
    // Where two names have one id, the first of them counts.
    let zone_names = cluster.zone_ids.iter().rev().map(|(name, id)| ((aws.clone(), id.clone()), name.clone()));
    let facts = MarketFacts {
        clouds: book.entries().map(|(market, _)| market.place.cloud.clone()).collect(),
        labels_capacity_type,
        zone_names: zone_names.collect(),
        ..MarketFacts::default()
    };
    Ok(BTreeMap::from([(SupplierName::new(name)?, facts)]))
}
