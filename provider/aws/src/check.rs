//! `stoker aws check`: the configuration held against the account.

use std::sync::Arc;

use futures::future::join_all;
use stoker_core::base::ids::{ClusterName, Region, SupplierName};
use stoker_core::market::price::PriceBook;
use stoker_core::policy::Policy;

use crate::config::Config;
use crate::region::RegionSupplier;
use crate::supplier::{Access, types_of};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In which region.
    pub region: Region,
    /// What.
    pub what: String,
    /// What was found, or what is wrong with it.
    pub told: Result<String, String>,
    /// The action that IAM does not allow, such as `RunInstances`; `None` where it is not that.
    pub denied: Option<String>,
}

/// The pools whose launches are tried.
#[derive(Debug, Clone)]
pub struct OfPolicy {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Which of its suppliers the file is of.
    pub supplier: SupplierName,
}

/// Looks at every region of the file, for the cluster that machines are tagged with. Launches are tried as dry runs: those of the policy's
/// pools, or without one a launch of each class. Nothing is made or ended, and no message is taken from a queue.
///
/// # Errors
/// When no region has credentials, and why; in words.
pub async fn check(
    config: &Config,
    cluster: &ClusterName,
    book: &PriceBook,
    access: &Access,
    of_policy: Option<&OfPolicy>,
) -> Result<Vec<Finding>, String> {
    let mut types = types_of(book);
    let mut regions = Vec::new();
    for (name, wanted) in &config.regions {
        let api = access.api(name, wanted).await;
        let types = types.remove(name).unwrap_or_default();
        regions.push(RegionSupplier::new(name.clone(), wanted.clone(), cluster.clone(), api, types, Arc::default()));
    }
    let found = join_all(regions.iter().map(|region| region.check(config, book, of_policy))).await;
    if let Some(Err(why)) = found.first()
        && found.iter().all(|of_region| of_region.as_ref().err() == Some(why))
    {
        return Err(why.clone());
    }
    let rows = regions.iter().zip(found).map(|(region, found)| match found {
        Ok(found) => found,
        Err(why) => vec![region.finding("credentials", Err(why))],
    });
    Ok(rows.flatten().collect())
}
