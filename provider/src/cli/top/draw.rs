//! Draws a screen: lines of text and their colours, from the screen alone.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use stoker_service::print::count;
use stoker_service::publish::picture::{NodePicture, Picture};

use super::columns::{self, NODES, NodeColumn, POOLS, Spec, UNKNOWN, cell, to_the_cent};
use super::screen::{Answer, Readiness, Screen, Tables};

/// From this width on columns are two spaces apart.
const WIDE: usize = 100;

/// Faults shown; what is more is counted.
const FAULTS: usize = 2;

/// From this height on blank lines part the tables.
const TALL: usize = 16;

const HELP: &str = "q quit  ↑↓ PgUp PgDn  enter explain  / filter  s sort  r reverse  tab tables";

/// Rows that there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) pools: usize,
    pub(super) nodes: usize,
    pub(super) lens: usize,
    blanks: usize,
}

/// How the height is shared out.
pub(super) fn room(screen: &Screen) -> Room {
    let height = usize::from(screen.size.1);
    let known = screen.answer.as_ref().map_or(0, |answer| answer.picture.pools.len());
    let blank = usize::from(height >= TALL);
    // The head and the help line.
    let left = height.saturating_sub(head(screen).len() + 1);
    let (pools, nodes) = match screen.tables {
        Tables::Both => {
            let pools = known.min((height / 3).max(1));
            let more = usize::from(pools < known);
            (pools, left.saturating_sub(1 + pools + more + 1 + 2 * blank))
        }
        Tables::Nodes => (0, left.saturating_sub(1 + blank)),
        Tables::Pools => (left.saturating_sub(1 + blank), 0),
    };
    Room { pools, nodes, lens: left.saturating_sub(1 + blank), blanks: blank }
}

/// Draws the screen.
pub(super) fn draw(screen: &Screen, frame: &mut Frame<'_>) {
    let area = frame.area();
    let lines = lines(screen);
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    if screen.typing {
        let typed = u16::try_from(screen.filter.chars().count() + 2).unwrap_or(u16::MAX);
        let x = area.x.saturating_add(typed).min(area.right().saturating_sub(1));
        frame.set_cursor_position(Position { x, y: area.bottom().saturating_sub(1) });
    }
}

/// The lines, as many as the screen is high.
fn lines(screen: &Screen) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(screen.size.0), usize::from(screen.size.1));
    let room = room(screen);
    let mut lines = head(screen);
    let blank = |lines: &mut Vec<Line<'static>>| lines.extend((0..room.blanks).map(|_| Line::default()));
    if let Some(lens) = &screen.lens {
        blank(&mut lines);
        lines.push(Line::styled(format!("node {}", lens.node.name), Modifier::BOLD));
        lines.extend(lens_text(screen).into_iter().skip(lens.offset).take(room.lens).map(Line::from));
    } else if let Some(answer) = &screen.answer {
        if screen.tables != Tables::Nodes {
            blank(&mut lines);
            lines.extend(pools(screen, &answer.picture, width, room.pools));
        }
        if screen.tables != Tables::Pools {
            blank(&mut lines);
            lines.extend(nodes(screen, answer, width, room.nodes));
        }
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), Line::default());
    lines.push(match (screen.typing, &screen.lens) {
        (true, _) => Line::from(format!("/ {}", screen.filter)),
        (false, Some(_)) => Line::styled("q quit  ↑↓ PgUp PgDn move  esc back", Modifier::DIM),
        (false, None) => Line::styled(HELP, Modifier::DIM),
    });
    lines
}

/// The service's time when the screen is drawn.
fn now(screen: &Screen, picture: &Picture) -> Timestamp {
    let since = SignedDuration::try_from(screen.since_answer()).unwrap_or(SignedDuration::MAX);
    picture.now.saturating_add(since).unwrap_or(Timestamp::MAX)
}

/// The lines at the top: the fleet, its nodes, what is wrong.
fn head(screen: &Screen) -> Vec<Line<'static>> {
    let width = usize::from(screen.size.0);
    let warning = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let Some(answer) = &screen.answer else {
        return vec![match &screen.away {
            Some(why) => Line::styled(cell(why, width, false), warning),
            None => Line::from(format!("asking {}", screen.source)),
        }];
    };
    let Answer { picture, ready } = &**answer;
    let age = now(screen, picture).duration_since(picture.at).as_secs().max(0);
    let ready_style = match ready.ready {
        true if ready.faults.is_empty() => Style::new().fg(Color::Green),
        true => Style::new().fg(Color::Yellow),
        false => warning,
    };
    let mut status = vec![
        Span::styled(picture.cluster.clone(), Modifier::BOLD),
        Span::from(format!("  {}  ", rate(screen, picture))),
        Span::styled(ready.word(), ready_style),
        Span::from(format!("  as of {age} s ago  ")),
    ];
    status.push(Span::styled(screen.source.clone(), Modifier::DIM));
    let mut lines = vec![Line::from(status), Line::from(summary(screen, picture))];
    if let Some(why) = &screen.away {
        let silent = screen.since_answer().as_secs();
        lines.push(Line::styled(cell(&format!("no picture for {silent} s: {why}"), width, false), warning));
    }
    lines.extend(faults(ready).into_iter().map(|fault| Line::styled(cell(&fault, width, false), ready_style)));
    lines
}

/// What the fleet costs, of how much it may.
fn rate(screen: &Screen, picture: &Picture) -> String {
    let rate = to_the_cent(screen.totals.rate);
    match &picture.budget {
        Some(budget) => format!("{rate}/h, budget {} of {}", to_the_cent(budget.spent), to_the_cent(budget.limit)),
        None => format!("{rate}/h"),
    }
}

fn faults(ready: &Readiness) -> Vec<String> {
    let mut shown: Vec<String> = ready.faults.iter().take(FAULTS).cloned().collect();
    if let Some(more) = ready.faults.len().checked_sub(FAULTS).filter(|more| *more > 0) {
        shown.push(format!("and {more} more: curl …/readyz"));
    }
    shown
}

/// How many nodes there are, by where they stand.
fn summary(screen: &Screen, picture: &Picture) -> String {
    let nodes = count(picture.nodes.len(), "node");
    if !screen.filter.is_empty() {
        return format!("{} of {nodes} with {:?}", screen.shown.len(), screen.filter);
    }
    let parts: Vec<String> = screen.totals.standings.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let mut text = if parts.is_empty() { nodes } else { format!("{nodes}: {}", parts.join(", ")) };
    if screen.totals.outdated > 0 {
        let _ = write!(text, "; {} outdated", screen.totals.outdated);
    }
    text
}

fn gap(width: usize) -> usize {
    if width < WIDE { 1 } else { 2 }
}

/// A row of cells by columns that were fitted.
fn row<'a>(fitted: &[(usize, usize)], specs: &[Spec], cells: impl Fn(usize) -> (&'a str, Style), gap: usize) -> Line<'static> {
    let mut spans = Vec::with_capacity(fitted.len() * 2);
    for (n, (at, width)) in fitted.iter().enumerate() {
        if n > 0 {
            spans.push(Span::from(" ".repeat(gap)));
        }
        let (text, style) = cells(*at);
        spans.push(Span::styled(cell(text, *width, specs.get(*at).is_some_and(|spec| spec.is_number)), style));
    }
    Line::from(spans)
}

fn pools(screen: &Screen, picture: &Picture, width: usize, room: usize) -> Vec<Line<'static>> {
    let mut widest = POOLS.map(|spec| spec.header.len());
    let cells: Vec<_> = picture.pools.iter().map(columns::pool_cells).collect();
    for cells in &cells {
        for (most, cell) in widest.iter_mut().zip(cells) {
            *most = cell.chars().count().max(*most);
        }
    }
    let fitted = columns::fit(&POOLS, &widest, width, gap(width));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let header = row(&fitted, &POOLS, |at| (POOLS.get(at).map_or("", |spec| spec.header), bold), gap(width));
    let offset = if screen.tables == Tables::Pools { screen.pool_offset } else { 0 };
    let rows = picture.pools.iter().zip(&cells).skip(offset).take(room).map(|(pool, cells)| {
        let style = if pool.fault.is_some() { Style::new().fg(Color::Red) } else { Style::new() };
        row(&fitted, &POOLS, |at| (cells.get(at).map_or("", String::as_str), style), gap(width))
    });
    let mut lines: Vec<_> = std::iter::once(header).chain(rows).collect();
    if let (Tables::Both, Some(more)) = (screen.tables, picture.pools.len().checked_sub(room).filter(|more| *more > 0)) {
        lines.push(Line::styled(format!("and {}: tab shows them", count(more, "more pool")), Modifier::DIM));
    }
    lines
}

fn nodes(screen: &Screen, answer: &Answer, width: usize, room: usize) -> Vec<Line<'static>> {
    let picture = &answer.picture;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let fitted = columns::fit(&NODES, &screen.widest, width, gap(width));
    let headers: Vec<String> = NODES
        .iter()
        .zip(NodeColumn::ALL)
        .map(|(spec, column)| {
            let arrow = if screen.reversed { "▼" } else { "▲" };
            if column == screen.sort { format!("{}{arrow}", spec.header) } else { spec.header.to_owned() }
        })
        .collect();
    let header = row(&fitted, &NODES, |at| (headers.get(at).map_or("", String::as_str), bold), gap(width));
    if screen.shown.is_empty() {
        let why = match picture.nodes.len() {
            0 => "no nodes".to_owned(),
            of => format!("none of {} has {:?}", count(of, "node"), screen.filter),
        };
        return vec![header, Line::styled(why, Modifier::DIM)];
    }
    let now = now(screen, picture);
    let rows = screen.listed().take(room).map(|(at, node)| {
        let mut cells = columns::node_cells(node, now);
        if let Some((at, width)) = fitted.iter().find(|(at, _)| *at == NodeColumn::Gpu as usize)
            && let Some(cell) = cells.get_mut(*at)
        {
            *cell = columns::gpu_cell(node, *width);
        }
        let style_of = |column| match NodeColumn::ALL.get(column) {
            Some(NodeColumn::Verdict) => Style::new().fg(colour(node)),
            Some(NodeColumn::Note) => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        };
        let line = row(&fitted, &NODES, |at| (cells.get(at).map_or("", String::as_str), style_of(at)), gap(width));
        if at == screen.cursor { line.style(Modifier::REVERSED) } else { line }
    });
    std::iter::once(header).chain(rows).collect()
}

/// The colour of a verdict.
fn colour(node: &NodePicture) -> Color {
    match columns::standing(node) {
        "busy" => Color::Green,
        "held" | "unknown" => Color::Yellow,
        "unhealthy" | "failed" => Color::Red,
        "draining" | "ending" | "cancelled" => Color::Magenta,
        "warm" | "idle" => Color::Cyan,
        _ => Color::Reset,
    }
}

/// Lines of the explanation.
pub(super) fn lens_lines(screen: &Screen) -> usize {
    lens_text(screen).len()
}

/// What is known of the node under the lens, wrapped.
fn lens_text(screen: &Screen) -> Vec<String> {
    let (Some(lens), Some(answer)) = (&screen.lens, &screen.answer) else { return Vec::new() };
    let node = &lens.node;
    let now = now(screen, &answer.picture);
    let gone = !answer.picture.nodes.iter().any(|of| of.record == node.record);
    let cells = columns::node_cells(node, now);
    let known = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
    let [_, pool, instance_type, zone, capacity, gpu, verdict, price, _, _] = cells;
    let held_by = node.held_by.as_ref().map(|pods| if pods.is_empty() { "nobody".to_owned() } else { pods.join(", ") });
    let mut facts = vec![
        ("record", format!("{} of group {}", node.record, node.group)),
        ("pool", pool),
        ("machine", format!("{instance_type} in {zone}, {capacity}, {price}/h")),
        ("verdict", node.why.as_ref().map_or_else(|| verdict.clone(), |why| format!("{verdict}: {why}"))),
        ("GPUs", gpu),
        ("held by", known(held_by.as_deref())),
    ];
    let rest = [("drained", &node.drained), ("cordoned", &node.cordoned), ("outdated", &node.outdated), ("kept", &node.kept)];
    facts.extend(rest.into_iter().filter_map(|(word, why)| Some((word, why.clone()?))));
    if gone {
        facts.push(("gone", "Stoker knows it no more; this is what was last known".to_owned()));
    }
    let width = usize::from(screen.size.0);
    let mut lines: Vec<String> = facts.iter().flat_map(|(word, text)| wrap(&format!("{word:<9} {text}"), width, 10)).collect();
    let journal = match (&lens.journal, screen.has_journal) {
        (Some(text), _) => text.clone(),
        (None, true) => "reading the journal".to_owned(),
        (None, false) => format!("Decisions about it: stoker explain {}, or stoker top --state-dir DIR.", node.record),
    };
    lines.push(String::new());
    lines.extend(journal.lines().flat_map(|line| wrap(line, width, line.chars().take_while(|c| *c == ' ').count() + 2)));
    lines
}

/// A line in lines of that width, all but the first indented.
fn wrap(line: &str, width: usize, indent: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let indent = indent.min(width / 2);
    let (mut lines, mut last) = (Vec::new(), String::new());
    for word in line.split(' ') {
        let mut word: String = word.to_owned();
        let fits = |last: &String, word: &str| last.chars().count() + word.chars().count() <= width;
        if !fits(&last, &word) && !last.trim().is_empty() {
            lines.push(std::mem::replace(&mut last, " ".repeat(indent)).trim_end().to_owned());
        }
        while !fits(&last, &word) && width > indent {
            let (head, tail) = split(&word, width.saturating_sub(last.chars().count()));
            lines.push(format!("{last}{head}"));
            (last, word) = (" ".repeat(indent), tail);
        }
        last += &word;
        last.push(' ');
    }
    lines.push(last.trim_end().to_owned());
    lines
}

fn split(word: &str, at: usize) -> (String, String) {
    (word.chars().take(at).collect(), word.chars().skip(at).collect())
}

/// The whole picture as plain text, a line a node, for a pipe.
pub(super) fn plain(screen: &Screen) -> String {
    let mut lines = head(screen);
    if let Some(answer) = &screen.answer {
        let width = usize::from(screen.size.0);
        lines.push(Line::default());
        lines.extend(pools(screen, &answer.picture, width, usize::MAX));
        lines.push(Line::default());
        lines.extend(nodes(screen, answer, width, usize::MAX));
    }
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}
