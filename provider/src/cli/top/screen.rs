//! What the screen shows, and what an input makes of it. No clock, no terminal, no network.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use stoker_core::base::ids::RecordId;
use stoker_core::base::units::UsdPerHour;
use stoker_service::publish::picture::{NodePicture, Picture};

use super::columns::{self, NodeColumn};

/// What happens to a screen.
#[derive(Debug)]
pub(super) enum Input {
    /// A key.
    Key(KeyEvent),
    /// The terminal has this size now.
    Resized(u16, u16),
    /// What the side port answered, or why it did not.
    Answered(Result<Box<Answer>, String>),
    /// What the journal says of a node.
    Explained(RecordId, String),
    /// Time passes.
    Tick,
    /// The process is to end.
    Quit,
}

/// What is asked of the side port each time.
#[derive(Debug)]
pub(super) struct Answer {
    /// The fleet.
    pub(super) picture: Picture,
    /// Whether calls are answered.
    pub(super) ready: Readiness,
}

/// What `/readyz` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Readiness {
    /// Whether calls are answered.
    pub(super) ready: bool,
    /// What is not as it should be.
    pub(super) faults: Vec<String>,
}

impl Readiness {
    /// By the answer: a line a condition.
    pub(super) fn of(is_ready: bool, text: &str) -> Self {
        let fault = |line: &str| {
            let kind = ["not-ready ", "degraded "].into_iter().find(|kind| line.starts_with(kind))?;
            Some(line.strip_prefix(kind)?.trim_start().to_owned())
        };
        Self { ready: is_ready, faults: text.lines().filter_map(fault).collect() }
    }

    /// In a word or two.
    pub(super) fn word(&self) -> &'static str {
        match (self.ready, self.faults.is_empty()) {
            (true, true) => "ready",
            (true, false) => "ready, degraded",
            (false, _) => "not ready",
        }
    }
}

/// What is to be done because of an input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    None,
    /// The screen is over.
    Quit,
    /// The journal is to be asked about a node.
    Explain(RecordId),
}

/// Which tables are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// Pools above nodes.
    Both,
    /// Nodes alone.
    Nodes,
    /// Pools alone.
    Pools,
}

/// What the nodes of an answer come to. Thousands of nodes are walked once an answer, not with each line that is drawn.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// What those with a price cost together.
    pub(super) rate: UsdPerHour,
    /// How many stand where, the most first.
    pub(super) standings: Vec<(String, usize)>,
    pub(super) outdated: usize,
}

impl Totals {
    fn of(nodes: &[NodePicture]) -> Self {
        let mut totals = Self::default();
        let mut standings: BTreeMap<&str, usize> = BTreeMap::new();
        for node in nodes {
            totals.rate = totals.rate.plus(node.rate.unwrap_or(UsdPerHour::ZERO));
            totals.outdated += usize::from(node.outdated.is_some());
            *standings.entry(columns::standing(node)).or_default() += 1;
        }
        totals.standings = standings.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
        totals.standings.sort_by_key(|(_, count)| Reverse(*count));
        totals
    }
}

/// A node under the lens.
#[derive(Debug)]
pub(super) struct Lens {
    /// As it was last seen: it may be gone meanwhile.
    pub(super) node: NodePicture,
    /// What the journal says of it.
    pub(super) journal: Option<String>,
    /// Lines above the screen.
    pub(super) offset: usize,
}

/// The screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// Who is asked.
    pub(super) source: String,
    /// Whether a journal can be asked.
    pub(super) has_journal: bool,
    pub(super) size: (u16, u16),
    /// Time since the screen began.
    pub(super) now: Duration,
    pub(super) answer: Option<Box<Answer>>,
    /// What its nodes come to.
    pub(super) totals: Totals,
    /// When it came.
    pub(super) answered_at: Duration,
    /// Why the last request was not answered; `None` where it was.
    pub(super) away: Option<String>,
    pub(super) tables: Tables,
    pub(super) sort: NodeColumn,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// Whether keys go into the filter.
    pub(super) typing: bool,
    /// Nodes that pass the filter, in order, by their place in the picture.
    pub(super) shown: Vec<usize>,
    /// Their widest cell, by column.
    pub(super) widest: [usize; NodeColumn::ALL.len()],
    /// The place of the selected node among those shown.
    pub(super) cursor: usize,
    selected: Option<RecordId>,
    /// Nodes above the screen.
    pub(super) offset: usize,
    /// Pools above the screen, where they are alone.
    pub(super) pool_offset: usize,
    pub(super) lens: Option<Lens>,
}

impl Screen {
    /// A screen before the first answer.
    pub(super) fn new(source: String, has_journal: bool, size: (u16, u16)) -> Self {
        Self {
            source,
            has_journal,
            size,
            now: Duration::ZERO,
            answer: None,
            totals: Totals::default(),
            answered_at: Duration::ZERO,
            away: None,
            tables: Tables::Both,
            sort: NodeColumn::Pool,
            reversed: false,
            filter: String::new(),
            typing: false,
            shown: Vec::new(),
            widest: [0; NodeColumn::ALL.len()],
            cursor: 0,
            selected: None,
            offset: 0,
            pool_offset: 0,
            lens: None,
        }
    }

    /// Takes an input in.
    pub(super) fn step(&mut self, input: Input, now: Duration) -> Effect {
        self.now = now;
        let mut effect = Effect::None;
        match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => effect = self.key(key),
            Input::Key(_) | Input::Tick => {}
            Input::Resized(width, height) => self.size = (width, height),
            Input::Answered(Ok(answer)) => {
                self.totals = Totals::of(&answer.picture.nodes);
                self.answer = Some(answer);
                self.answered_at = now;
                self.away = None;
                self.arrange();
            }
            Input::Answered(Err(why)) => self.away = Some(why),
            Input::Explained(record, text) => {
                if let Some(lens) = self.lens.as_mut().filter(|lens| lens.node.record == record) {
                    lens.journal = Some(text);
                }
            }
            Input::Quit => effect = Effect::Quit,
        }
        self.keep_in_sight();
        effect
    }

    /// The nodes of the last answer.
    pub(super) fn nodes(&self) -> &[NodePicture] {
        self.answer.as_ref().map_or(&[], |answer| &answer.picture.nodes)
    }

    /// The nodes that pass the filter, from the first on the screen on.
    pub(super) fn listed(&self) -> impl Iterator<Item = (usize, &NodePicture)> {
        let nodes = self.nodes();
        self.shown.iter().enumerate().skip(self.offset).filter_map(|(at, place)| Some((at, nodes.get(*place)?)))
    }

    /// How old the last answer is.
    pub(super) fn since_answer(&self) -> Duration {
        self.now.saturating_sub(self.answered_at)
    }

    /// Filters and sorts, and finds the selected node again.
    fn arrange(&mut self) {
        let Some(answer) = &self.answer else { return };
        let nodes = &answer.picture.nodes;
        let wanted = self.filter.to_lowercase();
        let words: Vec<&str> = wanted.split_whitespace().collect();
        let (sort, reversed) = (self.sort, self.reversed);
        let passing = nodes.iter().enumerate().filter(|(_, node)| words.is_empty() || columns::matches(node, &words));
        let mut keyed: Vec<_> =
            passing.map(|(place, node)| (columns::key(node, sort), columns::short_name(node), place)).collect();
        keyed.sort_by(|a, b| columns::in_order(a.0.as_ref(), b.0.as_ref(), reversed).then_with(|| a.1.cmp(b.1)));
        self.shown = keyed.into_iter().map(|(_, _, place)| place).collect();
        self.widest = columns::widest(self.shown.iter().filter_map(|place| nodes.get(*place)));
        let again = self.shown.iter().position(|place| nodes.get(*place).map(|node| node.record) == self.selected);
        self.cursor = again.unwrap_or(self.cursor).min(self.shown.len().saturating_sub(1));
        if let Some(lens) = &mut self.lens
            && let Some(node) = nodes.iter().find(|node| node.record == lens.node.record)
        {
            lens.node = node.clone();
        }
    }

    /// Rows of nodes that fit.
    pub(super) fn page(&self) -> usize {
        super::draw::room(self).nodes
    }

    fn keep_in_sight(&mut self) {
        let page = self.page().max(1);
        self.selected = self.shown.get(self.cursor).and_then(|place| self.nodes().get(*place)).map(|node| node.record);
        self.offset = self.offset.clamp((self.cursor + 1).saturating_sub(page), self.cursor);
        self.offset = self.offset.min(self.shown.len().saturating_sub(page));
        let pools = self.answer.as_ref().map_or(0, |answer| answer.picture.pools.len());
        self.pool_offset = self.pool_offset.min(pools.saturating_sub(super::draw::room(self).pools));
    }

    fn key(&mut self, key: KeyEvent) -> Effect {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Effect::Quit } else { Effect::None };
        }
        if self.typing {
            self.type_filter(key.code);
            return Effect::None;
        }
        let page = self.page().max(1);
        match key.code {
            KeyCode::Esc if self.lens.is_some() => self.lens = None,
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.go(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at| at + 1),
            KeyCode::PageUp => self.go(|at| at.saturating_sub(page)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(|at| at + page),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_| usize::MAX / 2),
            // What follows changes the list, which an explanation hides.
            _ if self.lens.is_some() => {}
            KeyCode::Enter => return self.explain(),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => self.sort_by(self.sort.next()),
            KeyCode::Char('S') => self.sort_by(self.sort.previous()),
            KeyCode::Char('r') => {
                self.reversed = !self.reversed;
                self.arrange();
            }
            KeyCode::Tab => {
                self.tables = match self.tables {
                    Tables::Both => Tables::Nodes,
                    Tables::Nodes => Tables::Pools,
                    Tables::Pools => Tables::Both,
                };
            }
            _ => {}
        }
        Effect::None
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => return,
        }
        self.arrange();
    }

    /// Moves what arrows move: the explanation, the pools where they are alone, or the selected node.
    fn go(&mut self, to: impl Fn(usize) -> usize) {
        if let Some(lens) = &mut self.lens {
            lens.offset = to(lens.offset);
            let last = super::draw::lens_lines(self).saturating_sub(super::draw::room(self).lens);
            if let Some(lens) = &mut self.lens {
                lens.offset = lens.offset.min(last);
            }
        } else if self.tables == Tables::Pools {
            self.pool_offset = to(self.pool_offset);
        } else {
            self.cursor = to(self.cursor).min(self.shown.len().saturating_sub(1));
        }
    }

    /// What is dear or busy comes first, where the order is by that.
    fn sort_by(&mut self, column: NodeColumn) {
        self.sort = column;
        self.reversed = matches!(column, NodeColumn::Gpu | NodeColumn::Price);
        self.arrange();
    }

    fn explain(&mut self) -> Effect {
        let node = self.shown.get(self.cursor).and_then(|place| self.nodes().get(*place)).cloned();
        let Some(node) = node.filter(|_| self.tables != Tables::Pools) else { return Effect::None };
        let record = node.record;
        self.lens = Some(Lens { node, journal: None, offset: 0 });
        if self.has_journal { Effect::Explain(record) } else { Effect::None }
    }
}
