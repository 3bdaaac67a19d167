//! Node classes that pools name, held against the files of their suppliers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use stoker_aws::config::{BadConfig, Config};
use stoker_core::base::text::quoted;
use stoker_core::policy::{Fault, Path, RawPolicy, RawPool, RawSupplier, RawSupplierKind};
use stoker_service::files;

/// The pools whose `nodeClass` none of their suppliers has. Files are those that the suppliers name, or `instead`. Where one cannot be
/// used, `doubts` gets it.
pub(super) fn unknown(raw: &RawPolicy, instead: Option<&FilePath>, doubts: &mut Vec<Fault>) -> Vec<Fault> {
    let mut known = BTreeMap::new();
    for (at, supplier) in raw.suppliers.iter().enumerate() {
        let Some(file) = supplier.config.as_deref().filter(|_| supplier.kind == RawSupplierKind::Aws) else { continue };
        let file = instead.unwrap_or(FilePath::new(file));
        match Config::read(file) {
            Ok(config) => drop(known.insert(supplier.name.as_str(), config.node_classes().map(str::to_owned).collect())),
            Err(error) => {
                let path = Path::root().key("suppliers").index(at).key("config");
                doubts.push(Fault { path, message: unusable(file, &error) });
            }
        }
    }
    let pools = raw.pools.iter().enumerate().filter_map(|(at, pool)| {
        let message = wrong(pool, &raw.suppliers, &known)?;
        Some(Fault { path: Path::root().key("pools").index(at).key("nodeClass"), message })
    });
    pools.collect()
}

fn unusable(file: &FilePath, error: &BadConfig) -> String {
    let file = files::shown(file);
    match error {
        BadConfig::Read { .. } => {
            format!("{file} cannot be read here, so nodeClass of pools is not checked: give it with --aws-file FILE")
        }
        BadConfig::Faults(_) => {
            format!("{file} has errors, so nodeClass of pools is not checked: `stoker aws check` lists them")
        }
    }
}

/// What is wrong with the class of a pool. A pool that some other supplier may serve is not judged: that one may know the class.
fn wrong(pool: &RawPool, suppliers: &[RawSupplier], known: &BTreeMap<&str, BTreeSet<String>>) -> Option<String> {
    if !pool.place.clouds.iter().any(|cloud| cloud == "aws") {
        return None;
    }
    let serves = |one: &&RawSupplier| pool.supplier.as_deref().is_none_or(|name| name == one.name);
    let classes: Option<Vec<_>> = suppliers.iter().filter(serves).map(|supplier| known.get(supplier.name.as_str())).collect();
    let classes: BTreeSet<&str> = classes?.into_iter().flatten().map(String::as_str).collect();
    let known = || classes.iter().copied().collect::<Vec<_>>().join(", ");
    match pool.node_class.as_deref() {
        _ if classes.is_empty() => None,
        Some(class) if classes.contains(class) => None,
        Some(class) => Some(format!("{} is no node class of its supplier: write one of {}", quoted(class), known())),
        None => Some(format!("is missing, and its supplier makes nodes by class only: write one of {}", known())),
    }
}
