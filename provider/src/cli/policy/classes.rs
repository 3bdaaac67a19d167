//! Node classes and regions that pools name, held against the files of their suppliers.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use stoker_aws::config::{BadConfig, Config};
use stoker_core::base::text::quoted;
use stoker_core::policy::{Fault, Path, RawPolicy, RawPool, RawSupplier, RawSupplierKind};
use stoker_service::files;

/// What a policy and the files of its suppliers say of each other.
#[derive(Debug, Default)]
pub(in super::super) struct Held {
    /// What no node can be made by.
    pub(in super::super) faults: Vec<Fault>,
    /// What is left out, and what was not looked at.
    pub(in super::super) doubts: Vec<Fault>,
}

/// Holds the pools against the files that their suppliers name, or against `instead`: `nodeClass` that none of them has, and regions that
/// none of them makes nodes in.
pub(in super::super) fn held(raw: &RawPolicy, instead: Option<&Config>) -> Held {
    let (mut held, mut known) = (Held::default(), BTreeMap::new());
    for (at, supplier) in raw.suppliers.iter().enumerate() {
        let Some(file) = supplier.config.as_deref().filter(|_| supplier.kind == RawSupplierKind::Aws) else { continue };
        let read = match instead {
            Some(config) => Ok(Cow::Borrowed(config)),
            None => Config::read(FilePath::new(file)).map(Cow::Owned),
        };
        match read {
            Ok(config) => drop(known.insert(supplier.name.as_str(), config)),
            Err(error) => {
                let path = Path::root().key("suppliers").index(at).key("config");
                held.doubts.push(Fault { path, message: unusable(FilePath::new(file), &error) });
            }
        }
    }
    for (at, pool) in raw.pools.iter().enumerate() {
        let path = Path::root().key("pools").index(at);
        let Some(configs) = configs_of(pool, &raw.suppliers, &known) else { continue };
        if let Some(message) = wrong_class(pool, &configs) {
            held.faults.push(Fault { path: path.key("nodeClass"), message });
        }
        wrong_regions(pool, &configs, &path.key("where").key("regions"), &mut held);
    }
    held
}

fn unusable(file: &FilePath, error: &BadConfig) -> String {
    let why = match error {
        BadConfig::Read { .. } => "cannot be read here",
        BadConfig::Faults(_) => "has errors",
    };
    let file = files::shown(file);
    format!("{file} {why}, so nodeClass and regions of pools are not checked: give it with --aws-file FILE")
}

/// The files of the suppliers that may serve a pool of AWS's; nothing where some other supplier may, which is not known.
fn configs_of<'a>(
    pool: &RawPool,
    suppliers: &[RawSupplier],
    known: &'a BTreeMap<&str, Cow<'_, Config>>,
) -> Option<Vec<&'a Config>> {
    if !pool.place.clouds.iter().any(|cloud| cloud == "aws") {
        return None;
    }
    let serves = |one: &&RawSupplier| pool.supplier.as_deref().is_none_or(|name| name == one.name);
    let configs = suppliers.iter().filter(serves).map(|supplier| Some(known.get(supplier.name.as_str())?.as_ref()));
    configs.collect::<Option<Vec<_>>>().filter(|configs| !configs.is_empty())
}

fn listed(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

fn wrong_class(pool: &RawPool, configs: &[&Config]) -> Option<String> {
    let classes: BTreeSet<&str> = configs.iter().flat_map(|config| config.node_classes()).collect();
    let known = || listed(&classes);
    match pool.node_class.as_deref() {
        Some(class) if classes.contains(class) => None,
        Some(class) => Some(format!("{} is no node class of its supplier: write one of {}", quoted(class), known())),
        None => Some(format!("is missing, and its supplier makes nodes by class only: write one of {}", known())),
    }
}

/// A pool of several clouds may name regions of the others: only one for AWS alone is judged.
fn wrong_regions(pool: &RawPool, configs: &[&Config], path: &Path, held: &mut Held) {
    if pool.place.clouds.iter().any(|cloud| cloud != "aws") {
        return;
    }
    let known: BTreeSet<&str> = configs.iter().flat_map(|config| config.regions()).collect();
    let is_known = |name: &String| known.contains(name.as_str());
    let named = &pool.place.regions;
    if !named.is_empty() && !named.iter().any(is_known) {
        let message = format!(
            "has no region of aws.yaml, so the pool never gets a node: write one of {}, or add one to aws.yaml",
            listed(&known)
        );
        held.faults.push(Fault { path: path.clone(), message });
        return;
    }
    for (at, name) in named.iter().enumerate().filter(|(_, name)| !is_known(name)) {
        let message =
            format!("{} is no region of aws.yaml, so the pool gets no node there: add it, or remove it here", quoted(name));
        held.doubts.push(Fault { path: path.index(at), message });
    }
}
