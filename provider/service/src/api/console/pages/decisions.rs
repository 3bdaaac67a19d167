//! Decisions: a time line of what was decided, each with its why.

use maud::{Markup, html};
use stoker_core::base::ids::DecisionId;

use crate::api::console::draw::moment;
use crate::api::console::page::Page;
use crate::api::console::text::Decision;

pub(in crate::api::console) fn main(found: Result<&[Decision], &str>, node: Option<&str>) -> Markup {
    html! {
        h1 { @match node { Some(node) => { "Decisions about " (node) }, None => "Decisions" } }
        @if node.is_some() { p { a href=(Page::Decisions { node: None }.url()) { "All decisions" } } }
        @match found {
            Err(why) => p.wrong { "The journal cannot be read: " (why) },
            Ok([]) => p { @if node.is_some() { "No decision about it is known." } @else { "None of the last decisions did anything." } },
            Ok(decisions) => ol.line { @for decision in decisions { (item(decision)) } },
        }
    }
}

fn item(decision: &Decision) -> Markup {
    let Decision { id, at, lines } = decision;
    html! {
        li data-key=(id) {
            h2 { a href=(Page::Decision(*id).url()) { (id) } " at " (moment(*at)) }
            dl { @for (word, text) in lines { div { dt { (word) } dd { (text) } } } }
        }
    }
}

/// One decision, as `stoker explain` prints it.
pub(in crate::api::console) fn one(id: DecisionId, found: Result<Option<&str>, &str>) -> Markup {
    html! {
        h1 { "Decision " (id) }
        p { a href=(Page::Decisions { node: None }.url()) { "All decisions" } }
        @match found {
            Err(why) => p.wrong { "The journal cannot be read: " (why) },
            Ok(None) => p { "There is no decision of that number: it was not made yet, or is forgotten after " code { "serve --retention" } "." },
            Ok(Some(text)) => pre tabindex="0" role="region" aria-label="What was decided, and why" { (text) },
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn each_decision_has_its_why_and_whatever_it_names_is_text() {
        let line = |word: &str, text: &str| (word.to_owned(), text.to_owned());
        let lines = vec![line("did", "launch r1 <script>"), line("lost", "dearer by 3 %")];
        let decisions = [Decision { id: DecisionId(7), at: Timestamp::UNIX_EPOCH, lines }];
        let page = main(Ok(&decisions), Some("<i>")).into_string();
        assert!(page.contains("href=\"/console/decisions/d7\"") && page.contains("dearer by 3 %"), "{page}");
        assert!(!page.contains("<script>") && !page.contains("<i>"), "{page}");
        assert!(main(Err("a & b"), None).into_string().contains("cannot be read: a &amp; b"));
        assert!(one(DecisionId(7), Ok(None)).into_string().contains("no decision of that number"));
        assert!(!one(DecisionId(7), Ok(Some("<b>"))).into_string().contains("<b>"));
    }
}
