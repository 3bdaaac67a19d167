//! Which calls an autoscaler made of Stoker, and in which order: made comparable, written, and read again.
//!
//! A transcript is text: a head of `name: value` lines, then paragraphs, each a heading and a line a step.
//!
//! * `loop`: from the calls that lead up to `Refresh` to the last before the next loop. Loops alike that follow each other stand there
//!   once, with their number.
//! * `beside`: what came between two loops, that is from what runs beside them.
//! * `end`: the process ended.
//!
//! Of calls that repeat, or take turns, a step says how often. The questions about single nodes are counted by stretch, because the
//! original goes through its nodes in random order. Only what is to change something, and what the expander is offered, shows its
//! arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tonic::Code;

/// A deletion that came so long after the call before, and the calls with it, are of no loop.
const PAUSE: Duration = Duration::from_millis(400);

const REFRESH: &str = "Refresh";
const TARGET_SIZE: &str = "NodeGroupTargetSize";
const FOR_NODE: &str = "NodeGroupForNode";
const OPTIONS: &str = "NodeGroupGetOptions";
const TEMPLATE: &str = "NodeGroupTemplateNodeInfo";
const DELETE: &str = "NodeGroupDeleteNodes";

/// A call as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When it came.
    pub at: Duration,
    /// Its method.
    pub method: String,
    /// What tells it from others of that method.
    pub argument: String,
    /// How it ended.
    pub code: Code,
}

impl Seen {
    /// Whether it may stand between the begin of a loop and its `Refresh`.
    fn leads_up(&self) -> bool {
        [FOR_NODE, "GPULabel"].contains(&self.method.as_str())
    }

    fn is_look(&self) -> bool {
        [FOR_NODE, OPTIONS].contains(&self.method.as_str())
    }

    fn shows_argument(&self) -> bool {
        [DELETE, "NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "BestOptions"].contains(&self.method.as_str())
    }

    /// The step that it is by itself.
    fn step(&self) -> String {
        let argument = if self.shows_argument() { format!(" {}", self.argument) } else { String::new() };
        let code = if self.code == Code::Ok { String::new() } else { format!(": {:?}", self.code) };
        format!("{}{argument}{code}", self.method)
    }
}

/// What a paragraph tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A loop.
    Loop,
    /// What came between loops.
    Beside,
    /// The process ended.
    End,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Loop, Self::Beside, Self::End];

    const fn word(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Beside => "beside",
            Self::End => "end",
        }
    }
}

/// Loops alike, or what came between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paragraph {
    /// What it tells.
    pub kind: Kind,
    /// How often in a row.
    pub times: u32,
    /// What was called, in order.
    pub steps: Vec<String>,
}

impl fmt::Display for Paragraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        if self.times > 1 {
            write!(f, " ×{}", self.times)?;
        }
        self.steps.iter().try_for_each(|step| write!(f, "\n  {step}"))
    }
}

/// What an autoscaler called, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    /// Who, doing what, how.
    pub head: BTreeMap<String, String>,
    /// In order.
    pub paragraphs: Vec<Paragraph>,
}

impl Transcript {
    /// Of those calls, in the order in which they came. A loop that the end cut off is left out.
    pub fn of(head: BTreeMap<String, String>, calls: &[Seen]) -> Self {
        let mut transcript = Self { head, paragraphs: Vec::new() };
        let end = calls.iter().position(|call| call.method == "Cleanup").unwrap_or(calls.len());
        let (calls, rest) = calls.split_at(end);
        let mut parts = parts(calls);
        if let (Some(cleanup), Some(last)) = (rest.first(), calls.last())
            && cleanup.at.saturating_sub(last.at) < PAUSE
        {
            parts.pop();
        }
        for (kind, calls) in parts {
            transcript.add(kind, steps(calls));
        }
        if let Some(cleanup) = rest.first() {
            transcript.add(Kind::End, vec![cleanup.step()]);
        }
        transcript
    }

    fn add(&mut self, kind: Kind, steps: Vec<String>) {
        match self.paragraphs.last_mut() {
            Some(last) if kind == Kind::Loop && last.kind == kind && last.steps == steps => last.times += 1,
            _ => self.paragraphs.push(Paragraph { kind, times: 1, steps }),
        }
    }

    /// Reads what [`Self`]'s `Display` wrote; lines that begin with `#` say nothing.
    ///
    /// # Errors
    /// The line that makes no sense.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut transcript = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let heading = line.split_once(" ×").map_or((line, Some(1)), |(word, times)| (word, times.parse().ok()));
            if let Some(step) = line.strip_prefix("  ") {
                let paragraph = transcript.paragraphs.last_mut().ok_or_else(|| format!("a step without heading: {line}"))?;
                paragraph.steps.push(step.to_owned());
            } else if let Some((name, value)) = line.split_once(": ").filter(|_| transcript.paragraphs.is_empty()) {
                transcript.head.insert(name.to_owned(), value.to_owned());
            } else if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.word() == heading.0)
                && let Some(times) = heading.1
            {
                transcript.paragraphs.push(Paragraph { kind, times, steps: Vec::new() });
            } else {
                return Err(format!("no heading: {line}"));
            }
        }
        Ok(transcript)
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.head {
            writeln!(f, "{name}: {value}")?;
        }
        self.paragraphs.iter().try_for_each(|paragraph| writeln!(f, "\n{paragraph}"))
    }
}

/// Cuts calls into loops and what is between them.
fn parts(calls: &[Seen]) -> Vec<(Kind, &[Seen])> {
    let mut cuts = Vec::new();
    for (at, _) in calls.iter().enumerate().filter(|(_, call)| call.method == REFRESH) {
        let leading = calls[..at].iter().rev().take_while(|call| call.leads_up()).count();
        cuts.push(at - leading);
    }
    let mut parts = Vec::new();
    let (mut cut, mut kind) = (0, Kind::Beside);
    for next in cuts.into_iter().chain([calls.len()]) {
        let part = &calls[cut..next];
        let pause = |pair: &[Seen]| pair[1].at.saturating_sub(pair[0].at) >= PAUSE;
        // A loop may be slow; what follows the last pause is of something else where only that can be.
        let other = |at: &usize| part[*at..].iter().any(|call| [DELETE, "NodeGroups"].contains(&call.method.as_str()));
        let end = part.windows(2).rposition(pause).map(|at| at + 1).filter(other).unwrap_or(part.len());
        let end = if end == part.len() { deletion(part) } else { end };
        let end = if kind == Kind::Loop { end } else { 0 };
        parts.extend([(kind, &part[..end]), (Kind::Beside, &part[end..])]);
        (cut, kind) = (next, Kind::Loop);
    }
    parts.retain(|(_, calls)| !calls.is_empty());
    parts
}

/// Where the deletion at the end of a loop's calls begins: it runs beside the loop that began it, soon or late, and asks for the options
/// of each node that goes. What takes a placeholder back belongs to the loop.
fn deletion(calls: &[Seen]) -> usize {
    let Some(first) = calls.iter().position(|call| call.method == DELETE) else { return calls.len() };
    let deleted = calls.iter().filter(|call| call.method == DELETE).count();
    let asked = calls[..first].iter().rev().take(deleted).take_while(|call| call.method == OPTIONS).count();
    let only = calls[first..].iter().all(|call| [DELETE, OPTIONS, TEMPLATE].contains(&call.method.as_str()));
    let placeholder = calls[first..].iter().any(|call| call.argument.contains("stoker://"));
    if only && !placeholder { first - asked } else { calls.len() }
}

/// What is comparable of calls.
fn steps(calls: &[Seen]) -> Vec<String> {
    let mut steps = Vec::new();
    let mut rest = calls;
    while let Some(first) = rest.first() {
        let turns = turns(rest);
        let length = if turns > 1 {
            steps.push(format!("{TARGET_SIZE} and {OPTIONS} in turn ×{turns}"));
            2 * turns
        } else if first.is_look() {
            let stretch = rest.iter().take_while(|call| call.is_look()).count();
            let mut counts = BTreeMap::<String, u32>::new();
            for call in &rest[..stretch] {
                *counts.entry(call.step()).or_default() += 1;
            }
            steps.push(counts.iter().map(|(step, count)| repeated(step, *count)).collect::<Vec<_>>().join(", "));
            stretch
        } else {
            let same =
                |at: &usize| rest[*at].method == first.method && rest[*at].code == first.code && self::turns(&rest[*at..]) < 2;
            let run = (0..rest.len()).take_while(same).count();
            if first.shows_argument() {
                let mut each: Vec<String> = rest[..run].iter().map(Seen::step).collect();
                // Deletions are sent side by side.
                each.sort();
                steps.extend(each);
            } else {
                steps.push(repeated(&first.step(), u32::try_from(run).unwrap_or(u32::MAX)));
            }
            run
        };
        rest = &rest[length..];
    }
    steps
}

fn repeated(step: &str, count: u32) -> String {
    if count == 1 { step.to_owned() } else { format!("{step} ×{count}") }
}

/// How often the target size and the options are asked for in turn, from the first call on.
fn turns(calls: &[Seen]) -> usize {
    let in_turn = |pair: &&[Seen]| {
        pair.len() == 2 && pair[0].method == TARGET_SIZE && pair[1].method == OPTIONS && pair.iter().all(|c| c.code == Code::Ok)
    };
    calls.chunks(2).take_while(in_turn).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(calls: &[(u64, &str, &str)]) -> Vec<Seen> {
        let seen = |(at, method, argument): &(u64, &str, &str)| Seen {
            at: Duration::from_millis(*at),
            method: (*method).to_owned(),
            argument: (*argument).to_owned(),
            code: Code::Ok,
        };
        calls.iter().map(seen).collect()
    }

    #[test]
    fn calls_become_loops_and_what_is_beside() {
        let calls = seen(&[
            (0, "NodeGroups", ""),
            (1, FOR_NODE, "n"),
            (2, REFRESH, ""),
            (3, TARGET_SIZE, "a"),
            (4, TARGET_SIZE, "b"),
            (5, TARGET_SIZE, "a"),
            (6, OPTIONS, "a"),
            (7, TARGET_SIZE, "b"),
            (8, OPTIONS, "b"),
            (1000, OPTIONS, "a"),
            (1001, DELETE, "a 2"),
            (1002, DELETE, "a 1"),
            (2000, FOR_NODE, "n"),
            (2001, REFRESH, ""),
            (3000, REFRESH, ""),
            (4000, REFRESH, ""),
            (4001, "Cleanup", ""),
        ]);
        let transcript = Transcript::of([("release".to_owned(), "1".to_owned())].into(), &calls);
        let text = "release: 1

beside
  NodeGroups

loop
  NodeGroupForNode
  Refresh
  NodeGroupTargetSize ×2
  NodeGroupTargetSize and NodeGroupGetOptions in turn ×2

beside
  NodeGroupGetOptions
  NodeGroupDeleteNodes a 1
  NodeGroupDeleteNodes a 2

loop
  NodeGroupForNode
  Refresh

loop
  Refresh

end
  Cleanup
";
        assert_eq!(transcript.to_string(), text);
        assert_eq!(Transcript::read(text), Ok(transcript));
        assert_eq!(Transcript::read("  Refresh").unwrap_err(), "a step without heading:   Refresh");
        assert_eq!(Transcript::read("loop ×x").unwrap_err(), "no heading: loop ×x");
    }
}
