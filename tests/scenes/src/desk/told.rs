//! What a pass decided, in words: what is new since the pass before.

use std::collections::BTreeMap;

use stoker_core::base::ids::{NodeGroupId, RecordId};
use stoker_core::choose::candidate::OfferVerdict as Weighed;
use stoker_core::plan::{Action, Checked, Plan};
use stoker_core::state::memory::Memory;
use stoker_core::state::record::{Record, State};

use super::Desk;

/// What was last told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// `minSize` of each group, and why it is closed.
    limits: BTreeMap<NodeGroupId, (u32, Option<String>)>,
    floors: BTreeMap<String, String>,
    /// Why each free node is kept.
    kept: BTreeMap<RecordId, String>,
    /// Whether a first pass was made.
    begun: bool,
}

/// What a record is called: its node, its machine, or its number.
fn called(desk: &Desk, record: &Record) -> String {
    let machine = record.instance().and_then(|id| desk.cloud.machines.get(id));
    match (&record.state, machine) {
        (State::Registered { node: Some(node), .. }, _) => node.to_string(),
        (_, Some(machine)) => machine.made.node_name.to_string(),
        (_, None) => record.id.to_string(),
    }
}

impl Desk {
    pub(super) fn tell(&mut self, before: &Memory, plan: &Plan<Checked>) {
        // Of thousands of runs nobody reads a word, and words are most of what a run costs.
        if self.line.quiet {
            return;
        }
        let mut lines: Vec<String> = Vec::new();
        for note in &plan.notes {
            lines.push(format!("{}{}: {note}", if note.is_alarm() { "ALARM " } else { "" }, note.reason()));
        }
        for (id, record) in &self.memory.records {
            let known = before.records.get(id);
            lines.extend(self.judged(*id, record, known.map(AsRef::as_ref)));
        }
        for action in &plan.actions {
            lines.extend(self.done(plan, action));
        }
        for (id, limits) in &plan.limits {
            let closed = limits.closed.as_ref().map(ToString::to_string);
            let (min, was) = self.told.limits.get(id).cloned().unwrap_or((0, None));
            if limits.min != min {
                lines.push(format!("{id}: minSize {min} -> {}", limits.min));
            }
            if was != closed && self.told.begun {
                lines.push(match &closed {
                    Some(why) => format!("{id}: closed: {why}"),
                    None => format!("{id}: open"),
                });
            }
            self.told.limits.insert(id.clone(), (limits.min, closed));
        }
        for floor in &plan.accounts.floors {
            let blocked = floor.blocked.as_ref().map_or(String::new(), |why| format!("; blocked: {why}"));
            let (wanted, why, warm, coming) = (floor.wanted, &floor.why, floor.warm, floor.coming);
            let text = format!("{wanted} wanted ({why}), {warm} warm, {coming} coming{blocked}");
            let pool = floor.pool.to_string();
            if self.told.floors.get(&pool) != Some(&text) {
                lines.push(format!("floor of {pool}: {text}"));
                self.told.floors.insert(pool, text);
            }
        }
        let kept: BTreeMap<RecordId, String> = plan.accounts.kept.iter().map(|(id, why)| (*id, why.to_string())).collect();
        for (id, why) in &kept {
            if self.told.kept.get(id) != Some(why)
                && let Some(record) = self.memory.records.get(id)
            {
                lines.push(format!("keeps {}: {why}", called(self, record)));
            }
        }
        self.told.kept = kept;
        self.told.begun = true;
        for line in lines {
            self.line.tell("provider", &line);
        }
    }

    /// Takes what holds now for told: of the passes before no word was kept.
    pub(crate) fn catch_up(&mut self) {
        let limits = self.limits.iter();
        let told = limits.map(|(id, limits)| (id.clone(), (limits.min, limits.closed.as_ref().map(ToString::to_string))));
        self.told.limits = told.collect();
        self.told.begun = true;
    }

    fn judged(&self, id: RecordId, record: &Record, known: Option<&Record>) -> Option<String> {
        let was = known.and_then(|known| known.judged.as_ref());
        let is = record.judged.as_ref()?;
        if was.is_some_and(|was| (was.verdict, &was.why) == (is.verdict, &is.why)) {
            return None;
        }
        let name = called(self, record);
        let name = if name == id.to_string() { name } else { format!("{name} ({id})") };
        let from = was.filter(|was| was.verdict != is.verdict).map_or(String::new(), |was| format!("{} -> ", was.verdict));
        Some(format!("{name}: {from}{} ({})", is.verdict, is.why))
    }

    fn done(&self, plan: &Plan<Checked>, action: &Action) -> Option<String> {
        let underway = |node| self.chores.iter().any(|(_, chore)| chore.node() == node);
        match action {
            Action::Launch { record, request, price, .. } => {
                let order = self.memory.records.get(record).and_then(|record| record.order);
                let lost = plan.explanations.iter().filter(|e| e.order == order).flat_map(|e| &e.candidates).filter_map(|c| {
                    let same = c.group == request.group && c.market != request.market;
                    (same && !matches!(c.verdict, Weighed::Chosen { .. }))
                        .then(|| format!("{}: {}", c.market.capacity_type, c.verdict))
                });
                let why: Vec<String> = lost.collect();
                let why = if why.is_empty() { String::new() } else { format!(" [not {}]", why.join("; ")) };
                Some(format!("buys {record}: {} at {price}{why}", request.market))
            }
            Action::Terminate { instance, .. } if self.ended_lately.contains_key(instance) => None,
            Action::Terminate { instance, why, .. } => Some(format!("ends {instance}: {why}")),
            Action::Hold { node, why } if !underway(node) => Some(format!("holds {node}: {why}")),
            Action::Release { node } if !underway(node) => Some(format!("takes its hold of {node} back")),
            Action::RemoveNode { node, .. } if !underway(node) => Some(format!("removes Node {node}")),
            Action::Drain { node, evict, .. } if !underway(node) => Some(format!("drains {node} ({})", evict.as_str())),
            Action::Uncordon { node, .. } if !underway(node) => Some(format!("opens {node}")),
            Action::Hold { .. }
            | Action::Release { .. }
            | Action::RemoveNode { .. }
            | Action::Drain { .. }
            | Action::Uncordon { .. } => None,
        }
    }
}
