//! Parts that pages share: times, money, bars, charts and tables.

use std::fmt::Write as _;
use std::ops::Range;

use jiff::Timestamp;
use maud::{Markup, Render, html};
use serde::Serialize;
use stoker_core::base::units::{UsdMicros, UsdPerHour};

use crate::print::Table;

/// What is not known.
pub(super) const UNKNOWN: &str = "unknown";

/// Width and height of a bar, and the room between two, in the units of its picture.
const BAR: (usize, usize, usize) = (6, 16, 2);

/// Width of a bar that lies.
const SHARE: i64 = 100;

/// A moment, to the second.
pub(super) fn moment(at: Timestamp) -> Markup {
    html! { time datetime=(exact(at)) { (at.strftime("%Y-%m-%d %H:%M:%SZ")) } }
}

/// A moment, in short.
pub(super) fn since(at: Timestamp) -> Markup {
    html! { time datetime=(exact(at)) { (at.strftime("%-d %b %H:%MZ")) } }
}

/// A moment as programs read it: HTML knows thousandths at most.
fn exact(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A rate as an amount, which is written to the cent.
pub(super) fn to_the_cent(UsdPerHour(micros): UsdPerHour) -> UsdMicros {
    UsdMicros(micros)
}

/// Money, as it is written.
pub(super) struct Usd(pub(super) UsdMicros);

impl Render for Usd {
    fn render_to(&self, buffer: &mut String) {
        self.0.to_string().render_to(buffer);
    }
}

/// How busy the GPUs of a node are, in thousandths; the mean is of those that are known.
pub(super) fn mean(gpus: &[Option<u16>]) -> Option<u16> {
    let known: Vec<u32> = gpus.iter().flatten().map(|level| u32::from(*level)).collect();
    let sum: u32 = known.iter().sum();
    sum.checked_div(u32::try_from(known.len()).ok()?).and_then(|mean| u16::try_from(mean).ok())
}

/// Thousandths, in whole percent.
pub(super) fn percent(permille: u16) -> String {
    format!("{} %", (permille + 5) / 10)
}

/// A bar for each GPU, with what they say in words.
pub(super) fn gpus(gpus: &[Option<u16>]) -> Markup {
    let Some(mean) = mean(gpus) else { return html! { span.unknown { (UNKNOWN) } } };
    let (wide, high, gap) = BAR;
    let (mut used, mut room, mut blind) = (String::new(), String::new(), String::new());
    for (at, level) in gpus.iter().enumerate() {
        let x = at * (wide + gap);
        // Writing to a text never fails.
        let _ = match level {
            Some(level) => {
                let bar = (usize::from(*level) * high).div_ceil(1_000).min(high);
                write!(used, "M{x} {high}v-{bar}h{wide}v{bar}z").and_then(|()| write!(room, "M{x} 0h{wide}v{high}h-{wide}z"))
            }
            None => write!(blind, "M{x} {}h{wide}", high / 2),
        };
    }
    let words: Vec<String> = gpus.iter().map(|level| level.map_or_else(|| UNKNOWN.to_owned(), percent)).collect();
    let width = gpus.len() * (wide + gap);
    html! {
        span.together {
            svg.gpus role="img" aria-label={ "GPUs: " (words.join(", ")) } width=(width) height=(high) viewBox={ "0 0 " (width) " " (high) } {
                path.room d=(room) {}
                path.used d=(used) {}
                @if !blind.is_empty() { path.blind d=(blind) {} }
            }
            " " (percent(mean))
        }
    }
}

/// How much of a limit is used, as a bar. What it says stands next to it in words.
pub(super) fn share(UsdPerHour(used): UsdPerHour, UsdPerHour(limit): UsdPerHour, is_tight: bool) -> Markup {
    let part = used.clamp(0, limit.max(0)).saturating_mul(SHARE).checked_div(limit).unwrap_or(SHARE);
    html! {
        svg.share.tight[is_tight] aria-hidden="true" width="100" height="8" viewBox="0 0 100 8" preserveAspectRatio="none" {
            path.room d="M0 0h100v8h-100z" {}
            path.used d={ "M0 0h" (part) "v8h-" (part) "z" } {}
        }
    }
}

/// Lines over time.
#[derive(Debug, Serialize)]
pub(super) struct Chart {
    /// What the lines are.
    pub(super) names: Vec<String>,
    /// Unix seconds.
    pub(super) at: Vec<i64>,
    /// The values of each line in dollars; `None` where nobody knows.
    pub(super) values: Vec<Vec<Option<f64>>>,
    /// How much time is shown, in seconds; as much as there is where that is not said.
    pub(super) span: Option<i64>,
}

/// Micro-dollars in dollars, for a picture alone.
#[expect(clippy::cast_precision_loss, reason = "a picture is not exact to the micro-dollar")]
pub(super) fn dollars(micros: i64) -> f64 {
    micros as f64 / 1e6
}

impl Chart {
    /// The chart, and below it the same as a table.
    pub(super) fn figure(&self, caption: &str, table: &Markup) -> Markup {
        // It has numbers and texts alone, which JSON can say.
        let data = serde_json::to_string(self).unwrap_or_default();
        html! {
            figure {
                figcaption { (caption) }
                div.plot data-plot=(data) aria-hidden="true" {}
                details { summary { (caption) ", as a table" } (table) }
            }
        }
    }
}

/// A table that is scrolled by itself where it does not fit.
pub(super) fn table(caption: &str, header: &[&str], numbers: &Range<usize>, rows: &[Vec<Markup>]) -> Markup {
    let class = |at: usize| numbers.contains(&at).then_some("number");
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for (at, name) in header.iter().enumerate() { th scope="col" class=[class(at)] { (name) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @match at {
                                    0 => th scope="row" { (cell) },
                                    _ => td class=[class(at)] { (cell) },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A table of texts.
pub fn text_table(Table { caption, header, numbers, rows }: &Table) -> Markup {
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows: Vec<Vec<Markup>> = rows.iter().map(|row| row.iter().map(|text| cell(text)).collect()).collect();
    table(caption, &header, numbers, &rows)
}

/// A cell of text.
pub(super) fn cell(text: &str) -> Markup {
    html! { (text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_known_is_no_idle_one() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[None, None]), None);
        assert_eq!(mean(&[Some(1_000), None, Some(500)]), Some(750));
        assert!(gpus(&[None]).into_string().contains("unknown"));
        let shown = gpus(&[Some(0), None, Some(1_000)]).into_string();
        assert!(shown.contains("GPUs: 0 %, unknown, 100 %") && shown.contains("class=\"blind\""), "{shown}");
        assert!(shown.ends_with(" 50 %</span>"), "{shown}");
    }

    #[test]
    fn a_share_stays_within_its_bar() {
        let part = |used, limit| {
            let shown = share(UsdPerHour(used), UsdPerHour(limit), false).into_string();
            shown.rsplit_once("M0 0h").and_then(|(_, rest)| rest.split_once('v')).map(|(part, _)| part.to_owned()).unwrap()
        };
        assert_eq!([part(0, 10), part(5, 10), part(20, 10), part(-1, 10), part(1, 0)], ["0", "50", "100", "0", "100"]);
    }

    #[test]
    fn data_of_a_chart_is_text_of_an_attribute() {
        let chart = Chart { names: vec!["\"><script>".to_owned()], at: vec![1], values: vec![vec![None]], span: None };
        let shown = chart.figure("a & b", &html! {}).into_string();
        assert!(!shown.contains("<script>") && shown.contains("null"), "{shown}");
    }
}
