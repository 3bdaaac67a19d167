//! Which page is asked for, by path and query.

use std::num::NonZeroUsize;

use stoker_core::base::ids::DecisionId;
use stoker_core::state::node_verdict::Verdict;

/// A page, and what of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Page {
    /// Pools, floors and budgets.
    Now,
    /// The nodes.
    Nodes(NodesAsked),
    /// The last decisions, or those of a node.
    Decisions { node: Option<String> },
    /// One decision.
    Decision(DecisionId),
    /// What was spent.
    Money,
    /// The policy in use.
    Policy,
}

/// Which nodes are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct NodesAsked {
    /// Words that must all occur.
    pub(super) words: String,
    /// Of this pool alone, where one is named.
    pub(super) pool: Option<String>,
    /// With this verdict alone, where one is named.
    pub(super) verdict: Option<Verdict>,
    /// In which order.
    pub(super) sort: Sort,
    /// Which page of them, from 1.
    pub(super) page: Option<NonZeroUsize>,
}

/// An order of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    #[default]
    Name,
    Pool,
    Verdict,
    /// The dearest first.
    Price,
    /// The least used first.
    Use,
}

impl Sort {
    pub(super) const ALL: [Self; 5] = [Self::Name, Self::Pool, Self::Verdict, Self::Price, Self::Use];

    /// As it stands in a query.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Pool => "pool",
            Self::Verdict => "verdict",
            Self::Price => "price",
            Self::Use => "use",
        }
    }

    /// As people are shown it.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Pool => "pool",
            Self::Verdict => "verdict",
            Self::Price => "price, dearest first",
            Self::Use => "GPU use, least first",
        }
    }
}

impl Page {
    /// The page of a path below `/console`; `None` where there is none. What a query says that is not known counts for nothing.
    pub(super) fn of(path: &str, query: &str) -> Option<Self> {
        let value = |name: &str| {
            let found = form_value(query.as_bytes(), name).map(|value| value.trim().to_owned());
            found.filter(|value| !value.is_empty())
        };
        Some(match path.strip_prefix("/console")? {
            "" | "/" => Self::Now,
            "/nodes" => Self::Nodes(NodesAsked {
                words: value("q").unwrap_or_default(),
                pool: value("pool"),
                verdict: value("verdict").and_then(|word| Verdict::ALL.into_iter().find(|known| known.as_str() == word)),
                sort: value("sort")
                    .and_then(|word| Sort::ALL.into_iter().find(|known| known.word() == word))
                    .unwrap_or_default(),
                page: value("page").and_then(|number| number.parse().ok()),
            }),
            "/decisions" => Self::Decisions { node: value("node") },
            "/money" => Self::Money,
            "/policy" => Self::Policy,
            path => Self::Decision(path.strip_prefix("/decisions/")?.strip_prefix('d')?.parse().ok()?),
        })
    }

    /// Its path and query.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Now => "/console".to_owned(),
            Self::Nodes(asked) => asked.url(asked.page.map_or(1, NonZeroUsize::get)),
            Self::Decisions { node: None } => "/console/decisions".to_owned(),
            Self::Decisions { node: Some(node) } => with_query("/console/decisions", &[("node", node)]),
            Self::Decision(id) => format!("/console/decisions/{id}"),
            Self::Money => "/console/money".to_owned(),
            Self::Policy => "/console/policy".to_owned(),
        }
    }

    /// Whether the journal is read for it.
    pub(super) const fn is_of_journal(&self) -> bool {
        matches!(self, Self::Decisions { .. } | Self::Decision(_))
    }

    /// What it is called.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Now => "Now".to_owned(),
            Self::Nodes(_) => "Nodes".to_owned(),
            Self::Decisions { node: None } => "Decisions".to_owned(),
            Self::Decisions { node: Some(node) } => format!("Decisions about {node}"),
            Self::Decision(id) => format!("Decision {id}"),
            Self::Money => "Money".to_owned(),
            Self::Policy => "Policy".to_owned(),
        }
    }
}

impl NodesAsked {
    /// The path and query of a page of these nodes.
    pub(super) fn url(&self, page: usize) -> String {
        let page = page.to_string();
        let asked = [
            ("q", self.words.as_str()),
            ("pool", self.pool.as_deref().unwrap_or_default()),
            ("verdict", self.verdict.map_or("", Verdict::as_str)),
            ("sort", if self.sort == Sort::default() { "" } else { self.sort.word() }),
            ("page", if page == "1" { "" } else { page.as_str() }),
        ];
        with_query("/console/nodes", &asked.into_iter().filter(|(_, value)| !value.is_empty()).collect::<Vec<_>>())
    }
}

/// What a query, or a form, says by that name; the first where it says several things.
pub(super) fn form_value(form: &[u8], name: &str) -> Option<String> {
    form_urlencoded::parse(form).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    if pairs.is_empty() {
        return path.to_owned();
    }
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    format!("{path}?{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_again_by_its_url() {
        let asked = NodesAsked {
            words: "g6 <b>&\"".to_owned(),
            pool: Some("a b".to_owned()),
            verdict: Some(Verdict::Held),
            sort: Sort::Price,
            page: NonZeroUsize::new(3),
        };
        let pages = [
            Page::Now,
            Page::Nodes(asked),
            Page::Decisions { node: None },
            Page::Decisions { node: Some("aws:///us-east-1a/i-1?x=1&y".to_owned()) },
            Page::Decision(DecisionId(42)),
            Page::Money,
            Page::Policy,
        ];
        for page in pages {
            let url = page.url();
            let (path, query) = url.split_once('?').unwrap_or((&url, ""));
            assert_eq!(Page::of(path, query), Some(page), "{url}");
        }
        assert_eq!(Page::of("/console/", ""), Some(Page::Now));
    }

    #[test]
    fn what_is_not_known_is_no_page_and_no_filter() {
        for path in
            ["/console/x", "/console/decisions/", "/console/decisions/42", "/console/decisions/dx", "/metrics", "/consoles"]
        {
            assert_eq!(Page::of(path, ""), None, "{path}");
        }
        let odd = Page::of("/console/nodes", "page=0&sort=%ff&verdict=dead&pool=&q=+&other=1&page=2");
        assert_eq!(odd, Some(Page::Nodes(NodesAsked::default())));
    }
}
