//! `stoker groups`: the node groups of the running service.

use std::fmt::Write as _;

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoker_core::base::ids::PoolName;
use stoker_core::base::units::UsdPerHour;
use stoker_core::limits::budget::Budget;
use stoker_core::limits::commitment::Use;
use stoker_core::plan::FreeNodes;
use stoker_core::policy::rules::demand::Demand;
use stoker_core::policy::rules::warm_floor::FloorStands;
use stoker_core::state::paused::StandingFault;

use super::accounts::{BudgetRow, FloorRow, UseRow};
use super::args::OutputArg;
use super::demand::{self, DemandRow};
use super::exit::{CliError, Exit, NotFound};
use super::out::{self, Money};
use super::side_port::UrlArg;
use stoker_service::print::{count, table, wrapped};

/// Lists the node groups of the running service: sizes, next price, and why a group is closed.
#[derive(Debug, Args)]
pub(super) struct GroupsArgs {
    #[command(flatten)]
    service: UrlArg,
    /// Only those of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Also groups hidden from the autoscaler: empty ones that another group dominates or that have no price
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputArg,
}

/// What `/debug/view` says, as far as it is shown here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DebugView {
    at: Timestamp,
    /// Why it is not shown to an autoscaler; `None` where it is.
    ready: Option<String>,
    #[serde(default)]
    faults: Vec<StandingFault>,
    groups: Vec<DebugGroup>,
    #[serde(default)]
    leaving: Vec<LeavingRow>,
    #[serde(default)]
    aside: Vec<AsideRow>,
    #[serde(default)]
    pods_without_gpu: Vec<Guest>,
    #[serde(default)]
    budgets: Vec<Budget>,
    #[serde(default)]
    commitments: Vec<Use>,
    #[serde(default)]
    floors: Vec<FloorStands>,
    #[serde(default)]
    demand: Demand,
}

/// A node that is being let go.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeavingRow {
    node: String,
    why: String,
    /// How far it has come.
    stands: String,
}

/// A node that takes no new pods and is not let go.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AsideRow {
    node: String,
    why: String,
}

/// A pod that sits on a node and wants no GPU.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Guest {
    /// Its namespace and name.
    pod: String,
    node: String,
    /// The node's group; `None` where that is not known yet.
    group: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DebugGroup {
    group: String,
    pool: String,
    instance_type: String,
    zone: String,
    target: u32,
    min: u32,
    max: u32,
    busy: u32,
    #[serde(default)]
    paid: u32,
    #[serde(default)]
    free: FreeNodes,
    listed: bool,
    next_price_micro_usd_per_hour: Option<UsdPerHour>,
    next_paid_micro_usd_per_hour: Option<UsdPerHour>,
    closed: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupsReport {
    at: Timestamp,
    /// Why the service refuses the autoscaler now; `None` where it does not.
    not_ready: Option<String>,
    /// What the internal consistency check found: of the pool that was asked for, and of the fleet.
    faults: Vec<StandingFault>,
    groups: Vec<GroupRow>,
    /// Nodes that are being let go.
    leaving: Vec<LeavingRow>,
    /// Nodes that take no new pods.
    aside: Vec<AsideRow>,
    /// Of the pool that was asked for, and of all pools.
    budgets: Vec<BudgetRow>,
    commitments: Vec<UseRow>,
    /// How warm floors stand.
    floors: Vec<FloorRow>,
    /// What the pools' demand signals say.
    demand: Vec<DemandRow>,
    /// Groups that are not shown to the autoscaler, and not above.
    unlisted: usize,
    /// Pods that sit on nodes of these groups and want no GPU.
    pods_without_gpu: Vec<Guest>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupRow {
    group: String,
    pool: String,
    instance_type: String,
    zone: String,
    target: u32,
    min: u32,
    max: u32,
    busy: u32,
    /// Free nodes that the autoscaler is kept from removing while another free one costs money.
    paid: u32,
    /// Its other free nodes: inside their windows, kept by the floor, or idle; and when the first would go.
    free: FreeNodes,
    listed: bool,
    /// What the next node adds to the bill; `None` while the group is closed.
    next_paid: Option<Money>,
    /// Its effective price, which ranks it; `None` while the group is closed.
    next_price: Option<Money>,
    closed: Option<String>,
    #[serde(skip)]
    next_shown: [String; 2],
}

/// Carries the command out.
pub(super) async fn run(args: &GroupsArgs) -> Result<Exit, CliError> {
    let view: DebugView = args.service.debug_view().await?;
    if let Some(pool) = &args.pool
        && !view.groups.iter().any(|group| group.pool == *pool)
    {
        return Err(CliError::NotFound(NotFound {
            what: "group of pool",
            name: pool.clone(),
            place: args.service.side_port()?.shown(),
            cure: None,
        }));
    }
    let of_pool = view.groups.into_iter().filter(|group| args.pool.as_ref().is_none_or(|pool| group.pool == *pool));
    let (shown, hidden): (Vec<_>, Vec<_>) = of_pool.partition(|group| group.listed || args.all);
    let of_shown = |guest: &Guest| guest.group.as_ref().is_none_or(|id| shown.iter().any(|group| group.group == *id));
    let pods_without_gpu = view.pods_without_gpu.into_iter().filter(of_shown).collect();
    let groups = shown.into_iter().map(GroupRow::from).collect();
    let of_asked = |pool: &PoolName| args.pool.as_ref().is_none_or(|asked| asked == pool.as_str());
    let own = |budget: &Budget| budget.of.pool().is_none_or(of_asked);
    let report = GroupsReport {
        at: view.at,
        not_ready: view.ready,
        faults: view.faults.into_iter().filter(|fault| fault.concern.pool().is_none_or(of_asked)).collect(),
        groups,
        budgets: view.budgets.into_iter().filter(own).map(BudgetRow::from).collect(),
        commitments: view.commitments.into_iter().map(UseRow::from).collect(),
        floors: view.floors.into_iter().filter(|floor| of_asked(&floor.pool)).map(FloorRow::from).collect(),
        demand: demand::rows(&view.demand, args.pool.as_deref(), view.at),
        leaving: view.leaving,
        aside: view.aside,
        pods_without_gpu,
        unlisted: hidden.len(),
    };
    out::print(args.output.format, &report, GroupsReport::table)?;
    Ok(Exit::Done)
}

impl From<DebugGroup> for GroupRow {
    fn from(group: DebugGroup) -> Self {
        let DebugGroup {
            group,
            pool,
            instance_type,
            zone,
            target,
            min,
            max,
            busy,
            paid,
            free,
            listed,
            next_price_micro_usd_per_hour: ranked,
            next_paid_micro_usd_per_hour: paid_next,
            closed,
        } = group;
        let next_shown = [paid_next, ranked].map(|next| next.map_or_else(|| "-".to_owned(), |price| price.to_string()));
        Self {
            group,
            pool,
            instance_type,
            zone,
            target,
            min,
            max,
            busy,
            paid,
            free,
            listed,
            next_paid: paid_next.map(Money::from),
            next_price: ranked.map(Money::from),
            closed,
            next_shown,
        }
    }
}

/// What becomes of a group's free nodes, in words. Of another day than `now`'s, a moment is said with its date.
fn of_free(free: FreeNodes, now: Timestamp) -> Vec<String> {
    let FreeNodes { window, floor, idle, goes_at } = free;
    let nodes = |n: u32| if n == 1 { "1 free node".to_owned() } else { format!("{n} free nodes") };
    let clock = |at: Timestamp| {
        let same_day = at.strftime("%F").to_string() == now.strftime("%F").to_string();
        at.strftime(if same_day { "%H:%MZ" } else { "%F %H:%MZ" }).to_string()
    };
    let mut words = Vec::new();
    if let Some(at) = goes_at {
        let first = if window == 1 { "" } else { "the first " };
        let verb = if window == 1 { "is" } else { "are" };
        words.push(format!("{} {verb} in the stabilization window; {first}may be released at {}", nodes(window), clock(at)));
    }
    if floor > 0 {
        words.push(format!("{} kept by the pool's floor", nodes(floor)));
    }
    if idle > 0 {
        words.push(format!("{} may be released: idle, and the window has ended", nodes(idle)));
    }
    words
}

impl GroupsReport {
    fn table(&self) -> String {
        const NEXT: [&str; 2] = ["NEXT NODE $/H", "RANKED AT $/H"];
        const HEADER: [&str; 11] =
            ["GROUP", "POOL", "TYPE", "ZONE", "TARGET", "MIN", "MAX", "BUSY", NEXT[0], NEXT[1], "CLOSED"];
        let mut reasons: Vec<&str> = Vec::new();
        let mut mark = |why| {
            let known = reasons.iter().position(|reason| *reason == why);
            let at = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            format!("[{}]", at + 1)
        };
        let rows = self.groups.iter().map(|row| {
            let GroupRow { group, pool, instance_type, zone, target, min, max, busy, next_shown, closed, .. } = row;
            let [target, min, max, busy] = [target, min, max, busy].map(u32::to_string);
            let [group, pool, instance_type, zone] = [group, pool, instance_type, zone].map(Clone::clone);
            let [paid_next, ranked] = next_shown.clone();
            vec![
                group,
                pool,
                instance_type,
                zone,
                target,
                min,
                max,
                busy,
                paid_next,
                ranked,
                closed.as_deref().map_or_else(String::new, &mut mark),
            ]
        });
        let rows = rows.collect();
        let mut text = table(&HEADER, &["TARGET", "MIN", "MAX", "BUSY", NEXT[0], NEXT[1]], rows);
        if self.groups.iter().any(|row| row.next_shown[0] != row.next_shown[1]) {
            let what = "NEXT NODE is what the next node adds to the bill; RANKED AT adds what reclaims and moving data cost";
            text.push_str(&wrapped("", what));
        }
        for (at, why) in reasons.into_iter().enumerate() {
            let groups = self.groups.iter().filter(|row| row.closed.as_deref() == Some(why)).count();
            text.push_str(&wrapped(&format!("closed [{}]  ", at + 1), &format!("{}: {why}", count(groups, "group"))));
        }
        for GroupRow { group, free, .. } in &self.groups {
            for words in of_free(*free, self.at) {
                text.push_str(&wrapped("", &format!("{group}: {words}")));
            }
        }
        for GroupRow { group, paid, .. } in self.groups.iter().filter(|row| row.paid > 0) {
            let (nodes, them) = if *paid == 1 { ("free node", "it") } else { ("free nodes", "them") };
            let why = format!("commitments pay for {them}, and another free node of the pool costs money");
            text.push_str(&wrapped("", &format!("{group}: scale-down of {paid} {nodes} blocked: {why}")));
        }
        for LeavingRow { node, why, stands } in &self.leaving {
            text.push_str(&wrapped("", &format!("{node} is being drained: {why}; {stands}")));
        }
        for AsideRow { node, why } in &self.aside {
            text.push_str(&wrapped("", &format!("{node} is cordoned: {why}")));
        }
        let accounts = self.budgets.iter().map(|budget| format!("budget of {budget}"));
        let accounts = accounts.chain(self.commitments.iter().map(ToString::to_string));
        let accounts = accounts.chain(self.floors.iter().map(ToString::to_string));
        for line in accounts.chain(self.demand.iter().map(ToString::to_string)) {
            text.push_str(&wrapped("", &line));
        }
        for fault in &self.faults {
            let _ = writeln!(text, "{fault}");
        }
        if let Some(why) = &self.not_ready {
            let _ = writeln!(text, "not ready: {why}");
        }
        if let [first, rest @ ..] = self.pods_without_gpu.as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more (-o json names them)", rest.len()) };
            let _ = writeln!(text, "without GPU on a GPU node: pod {} on {}{more}", first.pod, first.node);
        }
        if self.unlisted > 0 {
            let _ = writeln!(text, "{} more groups are hidden from the autoscaler; shown with --all", self.unlisted);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_next_node_costs_and_what_ranks_it_are_shown_under_headings_of_their_own() {
        let group = serde_json::json!({
            "group": "a.b.c", "pool": "a", "instanceType": "g6.xlarge", "zone": "c", "target": 0, "min": 0, "max": 4,
            "busy": 0, "listed": true, "nextPriceMicroUsdPerHour": 2_779_300, "nextPaidMicroUsdPerHour": 2_695_800,
        });
        let report = GroupsReport {
            at: Timestamp::UNIX_EPOCH,
            not_ready: None,
            faults: Vec::new(),
            groups: vec![GroupRow::from(serde_json::from_value::<DebugGroup>(group).unwrap())],
            leaving: Vec::new(),
            aside: Vec::new(),
            budgets: Vec::new(),
            commitments: Vec::new(),
            floors: Vec::new(),
            demand: Vec::new(),
            unlisted: 0,
            pods_without_gpu: Vec::new(),
        };
        let text = report.table();
        assert!(text.contains("NEXT NODE $/H  RANKED AT $/H") && text.contains("$2.6958        $2.7793"), "{text}");
        assert!(text.contains("NEXT NODE is what the next node adds to the bill"), "{text}");
    }

    #[test]
    fn free_nodes_are_told_with_the_moment_at_which_the_first_would_go() {
        let now: Timestamp = "2026-11-01T14:20:00Z".parse().unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        let free = FreeNodes { window: 3, floor: 1, idle: 2, goes_at: at("2026-11-01T14:32:10Z") };
        let words = [
            "3 free nodes are in the stabilization window; the first may be released at 14:32Z",
            "1 free node kept by the pool's floor",
            "2 free nodes may be released: idle, and the window has ended",
        ];
        assert_eq!(of_free(free, now), words);
        let one = FreeNodes { window: 1, goes_at: at("2026-11-02T00:01:00Z"), ..FreeNodes::default() };
        assert_eq!(of_free(one, now), ["1 free node is in the stabilization window; may be released at 2026-11-02 00:01Z"]);
        assert_eq!(of_free(FreeNodes::default(), now), [""; 0]);
    }
}
