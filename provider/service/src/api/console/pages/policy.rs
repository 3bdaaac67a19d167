//! Policy: the last good one, and what is wrong with the file.

use maud::{Markup, html};

pub(in crate::api::console) fn main(policy: Result<&str, &str>, fault: Option<&str>) -> Markup {
    html! {
        h1 { "Policy" }
        @match fault {
            Some(fault) => section.wrong aria-labelledby="wrong" {
                h2 #wrong { "The file has errors" }
                p { "It is not taken: the last good policy, below, stays in use." }
                pre tabindex="0" role="region" aria-label="Errors of the policy file" { (fault) }
            },
            None => p { span.good { "In use" } ": the file has no errors." },
        }
        h2 { "In use, with every default filled in" }
        @match policy {
            Ok(policy) => pre tabindex="0" role="region" aria-label="The policy in use" { (policy) },
            Err(why) => p.wrong { "It cannot be written out: " (why) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_stand_above_the_last_good_policy() {
        let page = main(Ok("kind: Policy"), Some("line 3: <b> is no pool")).into_string();
        assert!(page.find("line 3: &lt;b&gt; is no pool").unwrap() < page.find("kind: Policy").unwrap(), "{page}");
        let page = main(Ok("kind: Policy"), None).into_string();
        assert!(page.contains("the file has no errors") && !page.contains("wrong"), "{page}");
    }
}
