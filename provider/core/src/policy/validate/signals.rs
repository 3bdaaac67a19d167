//! Prometheus: how it is asked, and the demand signals of pools. That a query is PromQL is checked where there is a parser of it.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::{Faults, grammar};
use crate::base::text::{quoted, read_length};
use crate::policy::LONGEST_GAP;
use crate::policy::rules::demand::{Amount, DemandSignal};
use crate::policy::{Path, Prometheus, RawPool, RawPrometheus, RawSignal};

/// Shortest interval: a Prometheus scrapes hardly faster, and each round is some thirty queries.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// Longest interval: a reading stands for [`LONGEST_GAP`] at most, and rounds further apart would count for nothing.
const MAX_INTERVAL: SignedDuration = SignedDuration::from_mins(1);
const _: () = assert!(MAX_INTERVAL.as_secs() < LONGEST_GAP);
/// Oldest sample that may count: beyond this a node that went away would be taken for what it was.
const MAX_STALE: SignedDuration = SignedDuration::from_mins(10);
/// Longest query, in bytes: Prometheus and the proxies before it take that much in one request.
const MAX_QUERY: usize = 4096;
/// Longest signal name: it is a label's value in our own metrics.
const MAX_NAME: usize = 63;
/// Most signals of a pool: each is two queries a round.
const MAX_SIGNALS: usize = 16;

pub(super) fn prometheus(faults: &mut Faults, path: &Path, raw: Option<&RawPrometheus>) -> Option<Prometheus> {
    let Some(raw) = raw else { return Some(Prometheus::default()) };
    let Prometheus { interval, stale_after, node_labels, match_labels: _ } = Prometheus::default();
    let told = faults.0.len();
    let read = |faults: &mut Faults, key, text: Option<&String>, default| match text {
        None => Some(default),
        Some(text) => faults.keep(&path.key(key), read_length(text)),
    };
    let interval = read(faults, "interval", raw.interval.as_ref(), interval);
    let stale_after = read(faults, "staleAfter", raw.stale_after.as_ref(), stale_after);
    let shown = |text: &Option<String>| text.clone().unwrap_or_default();
    if let Some(length) = interval {
        let text = shown(&raw.interval);
        if length < MIN_INTERVAL {
            faults.add(&path.key("interval"), format!("{text} is below 5s: raise it, exporters are hardly scraped faster"));
        } else if length > MAX_INTERVAL {
            faults.add(&path.key("interval"), format!("{text} is above 1m: lower it, a reading is valid for 90 s at most"));
        }
    }
    if let (Some(stale), Some(interval)) = (stale_after, interval) {
        let field = path.key("staleAfter");
        if stale <= interval {
            let (stale, interval) = (stale.as_secs(), interval.as_secs());
            let why =
                format!("{stale}s is not above the interval of {interval}s, so all would be unknown between rounds: raise it");
            faults.add(&field, why);
        } else if stale > MAX_STALE {
            let why = "is above 10m: lower it, a node that is gone would still count as it was";
            faults.add(&field, format!("{} {why}", shown(&raw.stale_after)));
        }
    }
    let labels_path = path.key("nodeLabels");
    faults.unrepeated(&labels_path, &raw.node_labels, |text| quoted(text));
    for (at, label) in raw.node_labels.iter().enumerate() {
        let _ = faults.keep(&labels_path.index(at), label_name(label));
    }
    for (label, value) in &raw.match_labels {
        let field = path.key("matchLabels").key(label);
        let _ = faults.keep(&field, label_name(label));
        let _ = faults.keep(&field, grammar::line(value));
    }
    if faults.0.len() > told {
        return None;
    }
    Some(Prometheus {
        interval: interval?,
        stale_after: stale_after?,
        node_labels: if raw.node_labels.is_empty() { node_labels } else { raw.node_labels.clone() },
        match_labels: raw.match_labels.clone(),
    })
}

/// The name of a label of a Prometheus series.
fn label_name(text: &str) -> Result<(), String> {
    let mut chars = text.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if begins && chars.all(|c| c.is_ascii_alphanumeric() || c == '_') && text != "__name__" {
        Ok(())
    } else {
        Err(format!("{} is not a label of Prometheus: write letters, digits and '_', such as Hostname", quoted(text)))
    }
}

pub(super) fn signals(faults: &mut Faults, path: &Path, raw: &RawPool) -> Option<Vec<DemandSignal>> {
    let path = path.key("signals");
    let mut first = BTreeMap::new();
    let mut read = Vec::with_capacity(raw.signals.len());
    if raw.signals.len() > MAX_SIGNALS {
        let count = raw.signals.len();
        faults.add(&path, format!("has {count} signals, more than {MAX_SIGNALS}: join some into one query, as with max()"));
    }
    for (at, one) in raw.signals.iter().enumerate() {
        let path = path.index(at);
        if let Some(earlier) = first.get(one.name.as_str()) {
            let why = format!("{} is the name of signals[{earlier}] too: give each its own", quoted(&one.name));
            faults.add(&path.key("name"), why);
        } else {
            first.insert(one.name.as_str(), at);
        }
        read.push(signal(faults, &path, one));
    }
    read.into_iter().collect()
}

fn signal(faults: &mut Faults, path: &Path, raw: &RawSignal) -> Option<DemandSignal> {
    let name_path = path.key("name");
    let name = faults.id(&name_path, &raw.name);
    plain(faults, &name_path, &raw.name, "queueDepth");
    if let Some(unit) = &raw.per_second {
        plain(faults, &path.key("perSecond"), unit, "requests");
    }
    let query_path = path.key("query");
    if raw.query.trim().is_empty() {
        faults.add(&query_path, "is empty: write the PromQL that gives the signal");
    } else if raw.query.len() > MAX_QUERY {
        let why = "make it a recording rule and name that";
        faults.add(&query_path, format!("has {} bytes, more than {MAX_QUERY}: {why}", raw.query.len()));
    }
    let per_replica = per_replica(&raw.per_replica);
    let per_replica = faults.keep(&path.key("perReplica"), per_replica);
    Some(DemandSignal {
        name: name?,
        query: raw.query.trim().to_owned(),
        per_replica: per_replica?,
        per_second: raw.per_second.clone(),
    })
}

/// A word that may be a label's value.
fn plain(faults: &mut Faults, path: &Path, text: &str, example: &str) {
    if text.is_empty() || text.chars().any(|c| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')) {
        let why = format!("{} has other than letters, digits, '-' and '_': write it like {example}", quoted(text));
        faults.add(path, why);
    } else if text.len() > MAX_NAME {
        faults.add(path, format!("has {} characters, more than {MAX_NAME}: shorten it", text.len()));
    }
}

fn per_replica(number: &serde_json::Number) -> Result<Amount, String> {
    let text = number.to_string();
    match Amount::parse(&text) {
        Some(Amount(0)) => Err(format!("{text} is zero: write how much one replica takes, above 0")),
        Some(amount) => Ok(amount),
        None if text.starts_with('-') => Err(format!("{text} is negative: write how much one replica takes, above 0")),
        None => Err(format!("{text} is not a plain number up to a million million: write it like 8 or 0.5")),
    }
}
