//! Faults that a test asks for, and the record of all calls.

use std::time::Duration;

use jiff::Timestamp;

use crate::reply::{Refusal, Wire};
use crate::request::{Asked, Params};
use crate::world::{World, scrambled};

/// Bytes of a huge answer: more than a careful client reads.
const HUGE: usize = 17 << 20;

/// What a call meets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing but the delay of its rule: the call is done and answered.
    #[default]
    None,
    /// Nothing is done, and an error answered.
    Status {
        /// Its HTTP status.
        status: u16,
        /// Its code.
        code: String,
        /// Its message.
        message: String,
    },
    /// The call is done, and the connection cut before the answer.
    Lose,
    /// Nothing is done, and the connection cut.
    Cut,
    /// Nothing is done, and a proxy's page answered with status 502.
    Html,
    /// The call is done, and the first half of the answer given as if it were all.
    Truncated,
    /// The call is done, and the answer is 17 MiB longer than it should be.
    Huge,
    /// The call is done, and a text answered that is neither XML nor JSON, with status 200.
    NoXml,
}

impl Fault {
    /// An error that AWS gives.
    pub fn status(status: u16, code: &str, message: &str) -> Self {
        Self::Status { status, code: code.to_owned(), message: message.to_owned() }
    }

    /// Whether the call is not done.
    pub(crate) const fn prevents(&self) -> bool {
        matches!(self, Self::Status { .. } | Self::Cut | Self::Html)
    }
}

/// Which calls meet a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Calls of this action; else of any.
    pub action: Option<String>,
    /// Parameters that a call must have. `Filter.NAME` means the values of that filter, joined with commas. An empty value matches what
    /// is not there, and a `*` at the end anything that begins so: `("NextToken", "page-2*")` is the second page.
    pub matching: Vec<(String, String)>,
    /// Calls to this region; else to any.
    pub region: Option<String>,
    /// How many calls still meet it; else all.
    pub times: Option<u32>,
    /// Of a thousand calls so many meet it, drawn by the world's seed; else all.
    pub per_thousand: Option<u32>,
    /// How long the answer is held back, after the call was done.
    pub delay: Duration,
    /// What they meet.
    pub answer: Fault,
}

impl Rule {
    /// A fault of all calls of an action.
    pub fn of(action: &str, answer: Fault) -> Self {
        Self { action: Some(action.to_owned()), answer, ..Self::default() }
    }

    /// Only so many times.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Only so many of a thousand times, by chance.
    #[must_use]
    pub fn per_thousand(self, calls: u32) -> Self {
        Self { per_thousand: Some(calls), ..self }
    }

    /// Only in that region.
    #[must_use]
    pub fn region(self, region: &str) -> Self {
        Self { region: Some(region.to_owned()), ..self }
    }

    /// Only with that parameter.
    #[must_use]
    pub fn matching(mut self, name: &str, value: &str) -> Self {
        self.matching.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With the answer held back.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn meets(&self, asked: &Asked, drawn: u64) -> bool {
        self.times != Some(0)
            && self.per_thousand.is_none_or(|calls| drawn < u64::from(calls))
            && self.action.as_ref().is_none_or(|action| *action == asked.action)
            && self.region.as_ref().is_none_or(|region| *region == asked.region)
            && self.matching.iter().all(|(name, value)| asked.has(name, value))
    }
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// When it came.
    pub at: Timestamp,
    /// The account whose key signed it; empty where nobody's did.
    pub account: String,
    /// The service, as the signature names it.
    pub service: String,
    /// The region, as the signature names it.
    pub region: String,
    /// What was asked.
    pub action: String,
    /// With which parameters; of a JSON body the top fields.
    pub params: Params,
    /// The HTTP status of the answer; 0 where the connection was cut.
    pub status: u16,
    /// The code of the error; empty where there is none.
    pub code: String,
}

impl World {
    /// What a call meets.
    pub(crate) fn met(&mut self, asked: &Asked) -> (Fault, Duration) {
        let (call, seed) = (self.calls_met, self.seed);
        self.calls_met += 1;
        // Each rule draws for itself: what one leaves is not what the next one has too.
        let drawn = |rule: usize| scrambled(&format!("{seed} {call} {rule}")) % 1_000;
        let rules = self.rules.iter_mut().enumerate();
        let met = rules.map(|(at, rule)| (drawn(at), rule)).find(|(drawn, rule)| rule.meets(asked, *drawn));
        let Some((_, rule)) = met else { return Default::default() };
        rule.times = rule.times.map(|times| times.saturating_sub(1));
        (rule.answer.clone(), rule.delay)
    }

    /// Puts a call on record.
    pub(crate) fn record(&mut self, asked: &Asked, at: Timestamp, status: u16, refusal: Option<&Refusal>) {
        self.calls.push(Call {
            at,
            account: asked.account.clone(),
            service: asked.service.clone(),
            region: asked.region.clone(),
            action: asked.action.clone(),
            params: asked.params.clone(),
            status,
            code: refusal.map(|refusal| refusal.code.clone()).unwrap_or_default(),
        });
    }
}

/// What comes over the wire instead of an answer; `None` is a cut.
pub(crate) fn spoilt(fault: &Fault, mut text: Wire) -> Option<Wire> {
    match fault {
        Fault::None | Fault::Status { .. } => {}
        Fault::Lose | Fault::Cut => return None,
        Fault::Html => {
            let page = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1><hr></body></html>\n";
            text = Wire { status: 502, media: "text/html", text: page.to_owned(), error: None };
        }
        Fault::Truncated => {
            let mut half = text.text.len() / 2;
            while !text.text.is_char_boundary(half) {
                half -= 1;
            }
            text.text.truncate(half);
        }
        Fault::Huge => text.text.push_str(&" ".repeat(HUGE)),
        Fault::NoXml => "It works!\n".clone_into(&mut text.text),
    }
    Some(text)
}
