//! What stands around the main part of a page, and the page that asks for the token.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::page::{NodesAsked, Page};

/// The pages that stand in the head of each.
fn pages() -> [(Page, &'static str); 5] {
    [
        (Page::Now, "Now"),
        (Page::Nodes(NodesAsked::default()), "Nodes"),
        (Page::Decisions { node: None }, "Decisions"),
        (Page::Money, "Money"),
        (Page::Policy, "Policy"),
    ]
}

/// Whether a page is reached by that entry.
const fn is_below(page: &Page, entry: &Page) -> bool {
    matches!(
        (page, entry),
        (Page::Now, Page::Now)
            | (Page::Nodes(_), Page::Nodes(_))
            | (Page::Decisions { .. } | Page::Decision(_), Page::Decisions { .. })
            | (Page::Money, Page::Money)
            | (Page::Policy, Page::Policy)
    )
}

fn head(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        title { (title) }
        link rel="icon" type="image/svg+xml" href="/console/assets/icon.svg";
        link rel="stylesheet" href="/console/assets/uPlot.min.css";
        link rel="stylesheet" href="/console/assets/console.css";
    }
}

/// A whole page around its main part.
pub(super) fn whole(cluster: &str, page: &Page, main: &str, has_token: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(&format!("{}, {cluster}, Stoker", page.title())))
                script src="/console/assets/uPlot.iife.min.js" defer {}
                script src="/console/assets/console.js" defer {}
            }
            body {
                a.skip href="#live" { "Skip to the page" }
                header {
                    p.brand { "Stoker " span { (cluster) } }
                    nav aria-label="Console" {
                        ul {
                            @for (entry, name) in pages() {
                                li { a href=(entry.url()) aria-current=[is_below(page, &entry).then_some("page")] { (name) } }
                            }
                        }
                    }
                    div.state {
                        span #state role="status" {}
                        button #pause type="button" aria-pressed="false" hidden { "Pause updates" }
                        @if has_token { form action="/console/logout" method="post" { button type="submit" { "Sign out" } } }
                    }
                }
                main #live tabindex="-1" data-of=(page.url()) { (PreEscaped(main)) }
            }
        }
    }
}

/// The page that asks for the token.
pub(super) fn login(fault: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (head("Sign in, Stoker")) }
            body {
                header { p.brand { "Stoker" } }
                main {
                    h1 { "Sign in" }
                    @if let Some(fault) = fault { p.wrong role="alert" { (fault) } }
                    form.login action="/console/login" method="post" {
                        label for="token" { "Token, from the file of " code { "--console-token-file" } }
                        input #token type="password" name="token" autocomplete="current-password" required autofocus;
                        button type="submit" { "Sign in" }
                    }
                }
            }
        }
    }
}

/// A page that says why there is no other.
pub(super) fn refused(title: &str, why: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (head(title)) }
            body { header { p.brand { "Stoker" } } main { h1 { (title) } p { (why) } } }
        }
    }
}
