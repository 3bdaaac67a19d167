//! The columns of both tables: what a cell says, what it sorts by, and which columns a width has room for.

use std::cmp::Ordering;

use jiff::Timestamp;
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::{UsdMicros, UsdPerHour};
use stoker_core::facts::reading::Permille;
use stoker_core::market::offer::CapacityType;
use stoker_core::state::budget::Stage;
use stoker_service::publish::picture::{NodePicture, PoolPicture};

use crate::cli::nodes::bars;
use crate::cli::out::age;

/// What is not known.
pub(super) const UNKNOWN: &str = "-";

/// A column of nodes, from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeColumn {
    Node,
    Pool,
    Type,
    Zone,
    Capacity,
    Gpu,
    Verdict,
    Price,
    Holder,
    Note,
}

/// A column as it is laid out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) header: &'static str,
    /// Below this width it is left out.
    least: usize,
    /// It never gets wider.
    most: usize,
    /// Whether it is set to the right.
    pub(super) is_number: bool,
    /// Columns with a lower rank get room first.
    rank: u8,
}

const fn spec(header: &'static str, least: usize, most: usize, is_number: bool, rank: u8) -> Spec {
    Spec { header, least, most, is_number, rank }
}

/// Columns of nodes.
pub(super) const NODES: [Spec; 10] = [
    spec("NODE", 20, 40, false, 0),
    spec("POOL", 10, 24, false, 4),
    spec("TYPE", 11, 20, false, 7),
    spec("ZONE", 10, 16, false, 9),
    spec("CAPACITY", 9, 14, false, 8),
    spec("GPU", 8, 24, false, 3),
    spec("VERDICT", 13, 14, false, 1),
    spec("$/H", 8, 12, true, 2),
    spec("HELD BY", 12, 40, false, 5),
    spec("NOTE", 12, 200, false, 6),
];

/// Columns of pools.
pub(super) const POOLS: [Spec; 9] = [
    spec("POOL", 8, 24, false, 0),
    spec("RUNNING", 7, 7, true, 1),
    spec("COMING", 6, 6, true, 2),
    spec("WANTED", 6, 6, true, 3),
    spec("MAX", 3, 6, true, 7),
    spec("FLOOR", 5, 14, true, 5),
    spec("BUDGET", 6, 24, true, 6),
    spec("$/H", 6, 12, true, 4),
    spec("NOTE", 8, 200, false, 8),
];

impl NodeColumn {
    pub(super) const ALL: [Self; 10] = [
        Self::Node,
        Self::Pool,
        Self::Type,
        Self::Zone,
        Self::Capacity,
        Self::Gpu,
        Self::Verdict,
        Self::Price,
        Self::Holder,
        Self::Note,
    ];

    /// The one to the right; after the last, the first.
    pub(super) fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }

    /// The one to the left; before the first, the last.
    pub(super) fn previous(self) -> Self {
        Self::ALL[(self as usize + Self::ALL.len() - 1) % Self::ALL.len()]
    }
}

/// What a cell sorts by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Number(i64),
    Text(&'a str),
    /// A word, then since when.
    Since(&'a str, Option<Timestamp>),
}

/// What a node sorts by in a column; `None` where that is unknown.
pub(super) fn key(node: &NodePicture, column: NodeColumn) -> Option<Key<'_>> {
    match column {
        NodeColumn::Node => Some(Key::Text(short_name(node))),
        NodeColumn::Pool => node.pool.as_ref().map(|pool| Key::Text(pool.as_str())),
        NodeColumn::Type => node.instance_type.as_deref().map(Key::Text),
        NodeColumn::Zone => node.zone.as_deref().map(Key::Text),
        NodeColumn::Capacity => node.capacity_type.map(|capacity| Key::Text(capacity.as_str())),
        NodeColumn::Gpu => mean(node).map(Key::Number),
        NodeColumn::Verdict => Some(Key::Since(standing(node), node.since)),
        NodeColumn::Price => node.rate.map(|UsdPerHour(micros)| Key::Number(micros)),
        NodeColumn::Holder => node.held_by.as_ref().and_then(|pods| pods.first()).map(|pod| Key::Text(pod)),
        NodeColumn::Note => note(node).map(|(word, _)| Key::Text(word)),
    }
}

/// The order of two keys. What is unknown comes last either way.
pub(super) fn in_order(a: Option<&Key<'_>>, b: Option<&Key<'_>>, reversed: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if reversed => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

/// Whether a node has every word somewhere; the words are in lower case.
pub(super) fn matches(node: &NodePicture, words: &[&str]) -> bool {
    let mut text = format!("{} {} {} ", node.name, node.group, standing(node));
    let places = [node.pool.as_ref().map(PoolName::as_str), node.instance_type.as_deref(), node.zone.as_deref()];
    let capacity = node.capacity_type.map(CapacityType::as_str);
    let holders = node.held_by.iter().flatten().map(String::as_str);
    let notes = note(node).into_iter().flat_map(|(word, text)| [word, text]);
    for part in places.into_iter().flatten().chain(capacity).chain(holders).chain(notes) {
        text.push_str(part);
        text.push(' ');
    }
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Where a node stands, in a word: its verdict while it may work, else the step of its life.
pub(super) fn standing(node: &NodePicture) -> &str {
    match (node.phase.as_str(), node.verdict) {
        ("booting" | "joined" | "running", Some(verdict)) => verdict.as_str(),
        (phase, _) => phase,
    }
}

/// The name without the path in front of a machine's id.
pub(super) fn short_name(node: &NodePicture) -> &str {
    node.name.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&node.name)
}

/// What a person should know of a node next to its verdict: in a word, and why.
pub(super) fn note(node: &NodePicture) -> Option<(&'static str, &str)> {
    let drained = node.drained.as_deref().map(|why| ("drained", why));
    let cordoned = || node.cordoned.as_deref().map(|why| ("cordoned", why));
    let outdated = || node.outdated.as_deref().map(|why| ("outdated", why));
    let kept = || node.kept.as_deref().map(|why| ("kept", why));
    drained.or_else(cordoned).or_else(outdated).or_else(kept)
}

fn mean(node: &NodePicture) -> Option<i64> {
    let known: Vec<i64> = node.gpus.iter().flatten().map(|level| i64::from(*level)).collect();
    known.iter().sum::<i64>().checked_div(i64::try_from(known.len()).ok()?)
}

/// How busy its GPUs are: a bar each and their mean; in a narrow cell bars alone, or a bar of the mean.
pub(super) fn gpu_cell(node: &NodePicture, width: usize) -> String {
    let levels: Vec<_> = node.gpus.iter().map(|level| level.and_then(Permille::new)).collect();
    let count = levels.len();
    let all = bars(levels);
    match mean(node).and_then(|mean| Permille::new(u16::try_from(mean).ok()?)) {
        _ if all.chars().count() <= width => all,
        mean if count > width => bars(vec![mean]),
        _ => all.chars().take(count).collect(),
    }
}

/// A node's cells.
pub(super) fn node_cells(node: &NodePicture, now: Timestamp) -> [String; 10] {
    let or_unknown = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
    let word = standing(node);
    let is_verdict = node.verdict.is_some_and(|verdict| verdict.as_str() == word);
    let since = node.since.filter(|_| is_verdict).map(|since| age(Some(now.duration_since(since))));
    let holders = match node.held_by.as_deref() {
        None => UNKNOWN.to_owned(),
        Some([]) => "nobody".to_owned(),
        Some([pod]) => pod.clone(),
        Some([pod, rest @ ..]) => format!("{pod} +{}", rest.len()),
    };
    [
        short_name(node).to_owned(),
        or_unknown(node.pool.as_ref().map(PoolName::as_str)),
        or_unknown(node.instance_type.as_deref()),
        or_unknown(node.zone.as_deref()),
        or_unknown(node.capacity_type.map(CapacityType::as_str)),
        gpu_cell(node, usize::MAX),
        since.map_or_else(|| word.to_owned(), |since| format!("{word} {since}")),
        node.rate.map_or_else(|| UNKNOWN.to_owned(), |rate| rate.to_string()),
        holders,
        note(node).map_or_else(String::new, |(word, why)| format!("{word}: {why}")),
    ]
}

/// The widest cell of each column, without writing them all.
pub(super) fn widest<'a>(nodes: impl Iterator<Item = &'a NodePicture>) -> [usize; 10] {
    let mut widest = NODES.map(|spec| spec.header.len() + 1);
    for node in nodes {
        let holder =
            node.held_by.as_ref().map_or(1, |pods| pods.first().map_or(6, String::len) + if pods.len() > 1 { 4 } else { 0 });
        let cells = [
            short_name(node).len(),
            node.pool.as_ref().map_or(1, |pool| pool.as_str().len()),
            node.instance_type.as_ref().map_or(1, String::len),
            node.zone.as_ref().map_or(1, String::len),
            node.capacity_type.map_or(1, |capacity| capacity.as_str().len()),
            if node.gpus.is_empty() { 1 } else { node.gpus.len() + 5 },
            standing(node).len() + 4,
            node.rate.map_or(1, |rate| rate.to_string().len()),
            holder,
            note(node).map_or(0, |(word, why)| word.len() + 2 + why.len()),
        ];
        for (most, cell) in widest.iter_mut().zip(cells) {
            *most = cell.max(*most);
        }
    }
    widest
}

/// An amount an hour to the cent: fleets and budgets are not compared by less.
pub(super) fn to_the_cent(UsdPerHour(micros): UsdPerHour) -> String {
    UsdMicros(micros).to_string()
}

/// A pool's cells.
pub(super) fn pool_cells(pool: &PoolPicture) -> [String; 9] {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    let stage = pool.budget.as_ref().filter(|budget| budget.stage != Stage::Ample).map(|budget| budget.stage.to_string());
    let floor = pool.floor.as_ref().and_then(|floor| floor.blocked.as_ref()).map(|why| format!("floor: {why}"));
    [
        pool.pool.to_string(),
        pool.running.to_string(),
        pool.coming.to_string(),
        pool.wanted.to_string(),
        or_unknown(pool.max.map(|max| max.to_string())),
        or_none(pool.floor.as_ref().map(|floor| format!("{}/{}", floor.warm, floor.wanted))),
        or_none(pool.budget.as_ref().map(|of| format!("{} of {}", to_the_cent(of.spent), to_the_cent(of.limit)))),
        to_the_cent(pool.rate),
        pool.fault.clone().or(stage).or(floor).unwrap_or_default(),
    ]
}

/// The columns that there is room for, with their widths, from left to right. Those of the lowest ranks get their least room first, and
/// then in the same order as much as their widest cell needs.
pub(super) fn fit(specs: &[Spec], widest: &[usize], width: usize, gap: usize) -> Vec<(usize, usize)> {
    let mut by_rank: Vec<usize> = (0..specs.len()).collect();
    by_rank.sort_by_key(|at| specs.get(*at).map(|spec| spec.rank));
    let (mut left, mut widths) = (width, vec![0; specs.len()]);
    for at in &by_rank {
        let (Some(spec), Some(given)) = (specs.get(*at), widths.get_mut(*at)) else { continue };
        let least = spec.least.min(widest.get(*at).copied().unwrap_or(0).max(spec.header.len() + 1));
        let needed = least + if left == width { 0 } else { gap };
        if needed <= left {
            left -= needed;
            *given = least;
        }
    }
    for at in &by_rank {
        let (Some(spec), Some(given), Some(cell)) = (specs.get(*at), widths.get_mut(*at), widest.get(*at)) else { continue };
        if *given > 0 {
            let more = spec.most.min(*cell).saturating_sub(*given).min(left);
            *given += more;
            left -= more;
        }
    }
    widths.into_iter().enumerate().filter(|(_, width)| *width > 0).collect()
}

/// A text in a cell of that width: on one line, cut with an ellipsis or filled up.
pub(super) fn cell(text: &str, width: usize, is_number: bool) -> String {
    let length = text.chars().count();
    let shown = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    if length > width {
        let cut: String = shown.take(width.saturating_sub(1)).collect();
        return format!("{cut}…");
    }
    let (text, fill) = (shown.collect::<String>(), " ".repeat(width - length));
    if is_number { fill + &text } else { text + &fill }
}
