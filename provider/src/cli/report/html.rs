//! The report as a page: one file, which asks no network for anything.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use stoker_service::api::console::text_table;

use super::figures::Report;
use super::picture::{self, Picture, WIDTH};
use super::table::{grids, head, lives, notes, unit_costs};
use crate::cli::exit::CliError;
use crate::cli::not_drawn::NotDrawn;

/// How it looks, by day and by night, on paper, and on a telephone.
const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --faint: #595959; --rule: #d0d0d0; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --ink: #ececec; --faint: #b0b0b0; --rule: #44484f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 68rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .2rem 0; }
.wide { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--rule); white-space: nowrap; }
thead th { color: var(--faint); font-size: .8rem; }
tbody th { font-weight: 400; white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
.number { text-align: right; }
figure { margin: 1.5rem 0; max-width: 40rem; }
figcaption { font-weight: 600; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); }
svg [stroke=\"#000000\"] { stroke: var(--faint); }
ul.key { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: .3rem 0; font-size: .9rem; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
dt { font-weight: 600; }
dd { margin: 0 0 .4rem; overflow-wrap: anywhere; }
";

/// The page. Whatever stands in names and labels comes out as text.
pub(super) fn page(report: &Report) -> Result<String, CliError> {
    let head = head(report);
    let title = head.first().map_or("Spend", String::as_str);
    let body = match report.known_seconds {
        0 => html! {},
        _ => body(report)?,
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // No part of it may ask anybody for anything.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    @for line in head.iter().skip(1) { p { (line) } }
                    (body)
                    @let notes = notes(report);
                    @if !notes.is_empty() {
                        dl { @for (word, what) in &notes { dt { (word) } dd { (what) } } }
                    }
                }
            }
        }
    };
    Ok(page.into_string() + "\n")
}

fn body(report: &Report) -> Result<Markup, CliError> {
    let failed = |error: NotDrawn| CliError::Failed {
        doing: "the pictures of the report could not be drawn".into(),
        source: error.into(),
    };
    let (days, states) = (picture::days(report).map_err(failed)?, picture::states(report).map_err(failed)?);
    Ok(html! {
        figure {
            figcaption { "Effective cost of each day" }
            (drawn("days", &days))
            ul.key {
                @for (name, colour) in &days.key { li { i style={ "background:" (colour) } {} (name) } }
            }
        }
        figure {
            figcaption { "Hours of nodes by what they did" }
            (drawn("states", &states))
        }
        @for grid in &grids(report) { (text_table(grid)) }
        @for line in lives(report).into_iter().chain(unit_costs(report)) { p { (line) } }
        @if let Some(played) = &report.before_after {
            h2 { "Before and after" }
            @for line in &played.sentences() { p { (line) } }
            @for grid in &played.grids() { (text_table(grid)) }
        }
    })
}

/// A picture, with what it shows in words.
fn drawn(id: &str, picture: &Picture) -> Markup {
    let Picture { title, height, svg, key: _ } = picture;
    // What is drawn begins after the head of the plotting crate's own, which knows no title.
    let inside = svg.split_once("xmlns").and_then(|(_, rest)| rest.split_once('>')).map_or("</svg>", |(_, inside)| inside);
    html! {
        (PreEscaped(format!("<svg role=\"img\" aria-labelledby=\"{id}\" viewBox=\"0 0 {WIDTH} {height}\">")))
        title id=(id) { (title) }
        (PreEscaped(inside))
    }
}
