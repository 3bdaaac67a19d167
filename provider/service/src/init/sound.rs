//! What of a draft the rules of a policy refuse is taken out, with a comment.

use serde_json::Value;
use stoker_core::base::ids::ClusterName;
use stoker_core::market::price::PriceBook;
use stoker_core::policy::rules::supplier::KARPENTER;
use stoker_core::policy::{
    API_VERSION, Fault, Path, Policy, RawAdvise, RawDefaults, RawOverallLimits, RawPolicy, RawSupplier, RawSupplierKind,
    Segment, check_against_prices,
};

use super::draft::Draft;
use super::{InitError, Source};

/// Fields of a pool that it can do without.
const OPTIONAL: [&str; 6] = ["instanceTypes", "nodeClass", "capacity", "splitCapacityType", "template", "sharing"];

/// The policy of these pools.
pub(super) fn policy(source: Source, name: &ClusterName, drafts: &[Draft]) -> RawPolicy {
    let karpenter = RawSupplier {
        name: KARPENTER.to_owned(),
        kind: RawSupplierKind::Karpenter,
        endpoint: None,
        boot_template: None,
        tls: None,
        config: None,
    };
    RawPolicy {
        api_version: API_VERSION.to_owned(),
        kind: "Policy".to_owned(),
        cluster_name: name.to_string(),
        defaults: RawDefaults::default(),
        suppliers: (source == Source::Karpenter).then_some(karpenter).into_iter().collect(),
        limits: RawOverallLimits::default(),
        pools: drafts.iter().map(|draft| draft.raw.clone()).collect(),
        quotas: Vec::new(),
        prices: Vec::new(),
        commitments: Vec::new(),
        prometheus: None,
        karpenter: None,
        advise: RawAdvise::default(),
    }
}

/// Takes out of the pools what the rules refuse, until they refuse nothing: each turn takes something out.
pub(super) fn sound(
    source: Source,
    name: &ClusterName,
    drafts: &mut Vec<Draft>,
    notes: &mut Vec<String>,
    book: &PriceBook,
) -> Result<Policy, InitError> {
    loop {
        if drafts.is_empty() {
            return Err(nothing(source, std::mem::take(notes)));
        }
        let raw = policy(source, name, drafts);
        let unknown = check_against_prices(&raw, book);
        let fault = match Policy::try_from_raw(&raw) {
            Ok(policy) if unknown.is_empty() => return Ok(policy),
            Ok(_) => unknown.into_iter().next(),
            Err(faults) => faults.into_iter().next(),
        };
        let Some(Fault { path, message }) = fault else { return Err(InitError::Unlike) };
        let (at, rest) = match path.segments() {
            [Segment::Key(pools), Segment::Index(at), rest @ ..] if pools == "pools" => (*at, rest),
            _ => return Err(InitError::Name(message)),
        };
        let Some(draft) = drafts.get_mut(at) else { return Err(InitError::Name(message)) };
        if let Some(taken) = without(draft, rest) {
            draft.notes.push(format!("Left out: {taken} {message}."));
        } else {
            let draft = drafts.remove(at);
            let from = draft.notes.first().cloned().unwrap_or_default();
            notes.push(format!("Left out: pool {}, as {} {message}. {from}", draft.raw.name, place(rest)));
        }
    }
}

/// Where in its pool something is.
fn place(rest: &[Segment]) -> Path {
    rest.iter().fold(Path::root(), |path, segment| match segment {
        Segment::Key(key) => path.key(key.as_str()),
        Segment::Index(at) => path.index(*at),
    })
}

/// Takes the smallest part at that place that a pool can do without; what was taken.
fn without(draft: &mut Draft, rest: &[Segment]) -> Option<Path> {
    let mut pool = serde_json::to_value(&draft.raw).ok()?;
    let taken = taken(&mut pool, rest)?;
    draft.raw = serde_json::from_value(pool).ok()?;
    Some(taken)
}

fn taken(pool: &mut Value, rest: &[Segment]) -> Option<Path> {
    let mut here = &mut *pool;
    for (at, segment) in rest.iter().enumerate() {
        let to = || place(rest.get(..=at).unwrap_or_default());
        let is_label = at > 0 && rest.get(at - 1) == Some(&Segment::Key("labels".to_owned()));
        here = match (segment, here) {
            (Segment::Index(index), Value::Array(list)) if *index < list.len() => {
                // Without any model, cloud or region there is no pool.
                if list.len() == 1 && !is_optional(rest) && rest.get(1) != Some(&Segment::Key("zones".to_owned())) {
                    return None;
                }
                list.remove(*index);
                return Some(to());
            }
            (Segment::Key(key), Value::Object(map)) if is_label => return map.remove(key).map(|_| to()),
            (Segment::Key(key), Value::Object(map)) if map.contains_key(key) => map.get_mut(key)?,
            _ => break,
        };
    }
    match rest.first()? {
        Segment::Key(key) if is_optional(rest) => {
            pool.as_object_mut()?.remove(key)?;
            Some(Path::root().key(key.as_str()))
        }
        _ => None,
    }
}

fn is_optional(rest: &[Segment]) -> bool {
    matches!(rest.first(), Some(Segment::Key(key)) if OPTIONAL.contains(&key.as_str()))
}

fn nothing(source: Source, left_out: Vec<String>) -> InitError {
    let (what, cure) = match source {
        Source::Karpenter if !left_out.is_empty() => {
            ("NodePool that can become a pool", "change what keeps each out, or try --from-nodes or --from-pods")
        }
        Source::Karpenter => ("NodePool that makes GPU nodes", "try --from-nodes or --from-pods"),
        Source::Nodes => ("GPU node", "try --from-pods, or --from-karpenter where Karpenter makes nodes on demand"),
        Source::Pods => ("pod that asks for a GPU and could get a pool", "start from `stoker policy show` instead"),
    };
    InitError::Nothing { what, left_out, cure }
}
