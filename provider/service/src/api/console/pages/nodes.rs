//! Nodes: what each is, does and costs, and who holds it.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use maud::{Markup, html};
use stoker_core::base::ids::PoolName;
use stoker_core::market::offer::CapacityType;
use stoker_core::state::node_verdict::Verdict;

use crate::api::console::draw::{UNKNOWN, Usd, cell, gpus, mean, moment, since, table, to_the_cent};
use crate::api::console::page::{NodesAsked, Page, Sort};
use crate::publish::picture::{NodePicture, Picture};

/// Nodes on one page: as many as a person scrolls through.
const ROWS: usize = 100;

/// Holders shown of one node; more are counted.
const HOLDERS: usize = 3;

/// What a node is concluded to do; before there is a verdict, the step of its life.
pub(super) fn standing(node: &NodePicture) -> &str {
    node.verdict.map_or(node.phase.as_str(), |verdict| verdict.as_str())
}

pub(in crate::api::console) fn main(picture: &Picture, asked: &NodesAsked) -> Markup {
    let mut found: Vec<&NodePicture> = picture.nodes.iter().filter(|node| is_asked(node, asked)).collect();
    found.sort_by(|a, b| in_order(a, b, asked.sort).then_with(|| (&a.name, a.record).cmp(&(&b.name, b.record))));
    let pages = found.len().div_ceil(ROWS).max(1);
    let page = asked.page.map_or(1, NonZeroUsize::get).min(pages);
    let first = (page - 1) * ROWS;
    let rows: Vec<Vec<Markup>> = found.iter().skip(first).take(ROWS).map(|node| row(node)).collect();
    // What a telephone shows without scrolling comes first.
    let header = ["Node", "Verdict", "GPU use", "Held by", "Pool", "Type", "Bought", "$/h", "Note"];
    html! {
        h1 { "Nodes" }
        p.sum {
            @if picture.nodes.is_empty() { "No nodes" }
            @else if rows.is_empty() { "No node of the " (picture.nodes.len()) " is asked for" }
            @else {
                (first + 1) " to " (first + rows.len()) " of " (found.len())
                @if found.len() < picture.nodes.len() { " that are asked for, of " (picture.nodes.len()) }
            }
            "; as of " (moment(picture.at))
        }
        (filter(picture, asked))
        @if !rows.is_empty() { (table("Nodes", &header, &(7..8), &rows)) }
        @if pages > 1 {
            nav aria-label="Pages of nodes" {
                ul.pages {
                    @if page > 1 { li { a rel="prev" href=(asked.url(page - 1)) { "Previous" } } }
                    li { "Page " (page) " of " (pages) }
                    @if page < pages { li { a rel="next" href=(asked.url(page + 1)) { "Next" } } }
                }
            }
        }
    }
}

fn filter(picture: &Picture, asked: &NodesAsked) -> Markup {
    let mut pools: BTreeSet<&str> = picture.pools.iter().map(|pool| pool.pool.as_str()).collect();
    pools.extend(asked.pool.as_deref());
    html! {
        form.filter role="search" aria-label="Nodes" action="/console/nodes" method="get" {
            label { "Words " input type="search" name="q" value=(asked.words) maxlength="200"; }
            label {
                "Pool "
                select name="pool" {
                    option value="" { "all" }
                    @for pool in pools { option value=(pool) selected[asked.pool.as_deref() == Some(pool)] { (pool) } }
                }
            }
            label {
                "Verdict "
                select name="verdict" {
                    option value="" { "all" }
                    @for verdict in Verdict::ALL { option value=(verdict) selected[asked.verdict == Some(verdict)] { (verdict) } }
                }
            }
            label {
                "Order "
                select name="sort" {
                    @for sort in Sort::ALL { option value=(sort.word()) selected[asked.sort == sort] { (sort.in_words()) } }
                }
            }
            button type="submit" { "Show" }
        }
    }
}

fn row(node: &NodePicture) -> Vec<Markup> {
    let or_unknown = |text: Option<&str>| text.map_or_else(|| html! { span.unknown { (UNKNOWN) } }, cell);
    let decisions = Page::Decisions { node: Some(node.name.clone()) };
    let place = node.instance_type.as_ref().map(|kind| match &node.zone {
        Some(zone) => format!("{kind}, {zone}"),
        None => kind.clone(),
    });
    vec![
        html! { a href=(decisions.url()) { (node.name) } },
        html! {
            span.verdict.{ "is-" (standing(node)) } { (standing(node)) }
            @if let Some(at) = node.since { " " span.faint.together { "since " (since(at)) } }
        },
        gpus(&node.gpus),
        holders(node),
        or_unknown(node.pool.as_ref().map(PoolName::as_str)),
        or_unknown(place.as_deref()),
        node.capacity_type.map_or_else(|| or_unknown(None), |bought| html! { span.together { (bought) } }),
        node.rate.map_or_else(|| or_unknown(None), |rate| html! { (Usd(to_the_cent(rate))) }),
        note(node),
    ]
}

fn holders(node: &NodePicture) -> Markup {
    let Some(pods) = &node.held_by else { return html! { span.unknown { (UNKNOWN) } } };
    html! {
        @if pods.is_empty() { "nobody" }
        @for (at, pod) in pods.iter().take(HOLDERS).enumerate() { @if at > 0 { ", " } (pod) }
        @if pods.len() > HOLDERS { " and " (pods.len() - HOLDERS) " more" }
    }
}

/// Why it is as it is.
fn note(node: &NodePicture) -> Markup {
    let notes = [
        ("drained", &node.drained),
        ("cordoned", &node.cordoned),
        ("outdated", &node.outdated),
        ("kept", &node.kept),
        ("verdict", &node.why),
    ];
    let notes = notes.into_iter().filter_map(|(word, why)| Some((word, why.as_ref()?)));
    html! { @for (at, (word, why)) in notes.enumerate() { @if at > 0 { "; " } (word) ": " (why) } }
}

/// Whether a node is among those asked for.
fn is_asked(node: &NodePicture, asked: &NodesAsked) -> bool {
    let of_pool = |pool: &str| node.pool.as_ref().is_some_and(|of| of.as_str() == pool);
    let is_of = asked.pool.as_deref().is_none_or(of_pool) && asked.verdict.is_none_or(|verdict| node.verdict == Some(verdict));
    if !is_of || asked.words.is_empty() {
        return is_of;
    }
    let texts = [
        Some(node.name.as_str()),
        Some(node.group.as_str()),
        node.pool.as_ref().map(PoolName::as_str),
        node.zone.as_deref(),
        node.capacity_type.map(CapacityType::as_str),
        Some(standing(node)),
    ];
    let holders = node.held_by.iter().flatten().map(String::as_str);
    let text = texts.into_iter().flatten().chain(holders).collect::<Vec<_>>().join(" ").to_lowercase();
    asked.words.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

/// The order of two nodes; what is unknown comes last.
fn in_order(a: &NodePicture, b: &NodePicture, sort: Sort) -> Ordering {
    match sort {
        Sort::Name => Ordering::Equal,
        Sort::Pool => known_first(a.pool.as_ref(), b.pool.as_ref()),
        Sort::Verdict => standing(a).cmp(standing(b)).then_with(|| known_first(a.since, b.since)),
        Sort::Price => known_first(a.rate.map(std::cmp::Reverse), b.rate.map(std::cmp::Reverse)),
        Sort::Use => known_first(mean(&a.gpus), mean(&b.gpus)),
    }
}

fn known_first<T: Ord>(a: Option<T>, b: Option<T>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn picture(nodes: usize) -> Picture {
        let nodes: Vec<_> = (0..nodes)
            .map(|at| json!({ "record": at, "name": format!("n-{at:04}"), "group": "g", "phase": "running", "gpus": [at % 1_000], "pool": "a" }))
            .collect();
        serde_json::from_value(json!({
            "cluster": "c", "now": "2026-11-01T12:00:00Z", "at": "2026-11-01T12:00:00Z", "budget": null, "pools": [], "nodes": nodes
        }))
        .unwrap()
    }

    fn shown(picture: &Picture, asked: &NodesAsked) -> String {
        main(picture, asked).into_string()
    }

    #[test]
    fn a_large_fleet_is_shown_in_pages() {
        let picture = picture(250);
        let page = |number| shown(&picture, &NodesAsked { page: NonZeroUsize::new(number), ..NodesAsked::default() });
        let first = page(1);
        assert_eq!(first.matches("<th scope=\"row\">").count(), 100);
        assert!(first.contains("1 to 100 of 250") && first.contains("n-0099") && !first.contains("n-0100<"), "{first}");
        assert!(first.contains("page=2") && !first.contains("Previous"), "{first}");
        let last = page(3);
        assert_eq!(last.matches("<th scope=\"row\">").count(), 50);
        assert!(last.contains("201 to 250 of 250") && last.contains("page=2") && !last.contains("Next<"), "{last}");
        // Nodes that are gone meanwhile leave no empty page.
        assert!(page(99).contains("Page 3 of 3"));
        assert!(shown(&self::picture(0), &NodesAsked::default()).contains("No nodes"));
    }

    #[test]
    fn nodes_are_filtered_and_sorted_and_the_unknown_comes_last() {
        let mut picture = picture(3);
        picture.nodes[0].gpus.clear();
        picture.nodes[2].held_by = Some(vec!["team-x/Train-1".to_owned()]);
        let asked = NodesAsked { sort: Sort::Use, ..NodesAsked::default() };
        let all = shown(&picture, &asked);
        let at = |name: &str| all.find(&format!(">{name}</a>")).unwrap();
        assert!(at("n-0001") < at("n-0002") && at("n-0002") < at("n-0000"), "{all}");
        let one = shown(&picture, &NodesAsked { words: "TRAIN n-".to_owned(), ..NodesAsked::default() });
        assert!(one.contains("1 to 1 of 1 that are asked for, of 3") && one.contains("n-0002"), "{one}");
        let none = shown(&picture, &NodesAsked { pool: Some("b".to_owned()), ..NodesAsked::default() });
        assert!(none.contains("No node of the 3 is asked for"), "{none}");
    }

    #[test]
    fn what_is_unknown_says_so_and_names_are_text() {
        let mut picture = picture(1);
        let node = &mut picture.nodes[0];
        node.gpus.clear();
        node.name = "<img src=x onerror=alert(1)>\"'&".to_owned();
        node.held_by = Some(vec!["</td><script>alert(1)</script>".to_owned()]);
        let page = shown(&picture, &NodesAsked { words: "\"><script>".to_owned(), ..NodesAsked::default() });
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
        let page = shown(&picture, &NodesAsked::default());
        assert!(!page.contains("<script>") && !page.contains("<img") && page.contains("&lt;script&gt;"), "{page}");
        assert_eq!(page.matches("<span class=\"unknown\">unknown</span>").count(), 4, "type, bought, price, use: {page}");
        picture.nodes[0].held_by = None;
        assert_eq!(shown(&picture, &NodesAsked::default()).matches(">unknown</span>").count(), 5);
        picture.nodes[0].held_by = Some(Vec::new());
        assert!(shown(&picture, &NodesAsked::default()).contains("nobody"));
    }
}
