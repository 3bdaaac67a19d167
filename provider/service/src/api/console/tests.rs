use std::net::SocketAddr;

use axum::body::Body;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::json;
use stoker_core::base::ids::DecisionId;
use stoker_journal::Journal;
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::*;
use crate::policy_file;

const TOKEN: &str = "correct-horse-battery";

/// What a name may hold that would be markup.
const HOSTILE: &str = "<script>alert(1)</script>";

/// Words of nothing, but for a hostile name.
struct Words;

impl ConsoleText for Words {
    fn decisions(&self, _: Reader, node: Option<String>) -> Answer<Vec<Decision>> {
        let lines = vec![("did".to_owned(), node.unwrap_or_else(|| HOSTILE.to_owned()))];
        async { Ok(vec![Decision { id: DecisionId(1), at: Timestamp::UNIX_EPOCH, lines }]) }.boxed()
    }

    fn decision(&self, _: Reader, id: DecisionId) -> Answer<Option<String>> {
        async move { Ok((id == DecisionId(1)).then(|| HOSTILE.to_owned())) }.boxed()
    }

    fn money(&self, _: Reader, _: Arc<Policy>, _: Timestamp) -> Answer<Money> {
        async { Ok(Money { head: vec![HOSTILE.to_owned()], ..Money::default() }) }.boxed()
    }

    fn policy(&self, policy: &Policy) -> Result<String, String> {
        Ok(format!("clusterName: {}", policy.cluster))
    }
}

fn picture() -> Picture {
    let node =
        json!({ "record": 1, "name": HOSTILE, "group": HOSTILE, "phase": "running", "heldBy": [HOSTILE], "why": HOSTILE });
    let pool = json!({ "pool": "a", "running": 1, "coming": 0, "wanted": 1, "max": null, "floor": null, "budget": null, "rate": 0,
                       "fault": HOSTILE });
    let at = "2026-11-01T12:00:00Z";
    serde_json::from_value(json!({ "cluster": "c", "now": at, "at": at, "budget": null, "pools": [pool], "nodes": [node] }))
        .unwrap()
}

struct Pages {
    router: Router,
    console: Arc<Console>,
    stop: CancellationToken,
    _dir: TempDir,
}

async fn pages(token: bool, streams: usize) -> Pages {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let listen: SocketAddr = "127.0.0.1:8088".parse().unwrap();
    let access = Access::open(token.then_some(file.as_path()), listen, None, Clock::system()).unwrap();
    let policy = Arc::new(policy_file::parse("example", policy_file::example(), None).unwrap());
    let (journal, _) = Journal::open(dir.path().join("state").as_path()).await.unwrap();
    let sources = Sources {
        picture: Arc::new(picture),
        conditions: Arc::new(|| vec![Condition::degraded("policy", HOSTILE)]),
        policy: Box::new(move || Arc::clone(&policy)),
        policy_fault: Some(watch::Sender::new(Some(HOSTILE.to_owned())).subscribe()),
        journal: journal.reader(),
        text: Arc::new(Words),
        clock: Clock::system(),
    };
    let console = Arc::new(Console::new(Arc::new(access), sources, streams));
    let stop = CancellationToken::new();
    Pages { router: Arc::clone(&console).router(stop.clone()), console, stop, _dir: dir }
}

struct Answered {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Pages {
    async fn response(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost:8088");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        let response = self.response(method, path, headers, body).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answered { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    async fn get(&self, path: &str) -> Answered {
        self.ask("GET", path, &[], "").await
    }
}

const PAGES: [&str; 7] = [
    "/console",
    "/console/nodes?q=%3Cscript%3Ealert(1)%3C/script%3E",
    "/console/decisions",
    "/console/decisions?node=%3Cscript%3Ealert(1)%3C/script%3E",
    "/console/decisions/d1",
    "/console/money",
    "/console/policy",
];

#[tokio::test]
async fn whatever_stands_in_a_name_comes_out_as_text_on_every_page() {
    let pages = pages(false, 1).await;
    for path in PAGES {
        let Answered { status, text, .. } = pages.get(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        assert!(text.contains("&lt;script&gt;alert(1)") && !text.contains("<script>alert"), "{path}: {text}");
        // No style and no script stands in a page, which the policy would refuse.
        assert!(!text.contains(" style=") && !text.contains("<style") && !text.contains(" onclick="), "{path}: {text}");
    }
}

#[tokio::test]
async fn every_answer_has_the_strict_headers() {
    let pages = pages(true, 1).await;
    let bearer = format!("Bearer {TOKEN}");
    for path in PAGES.iter().chain(&["/console/login", "/console/assets/console.js", "/console/assets/x", "/console/x"]) {
        for shown in [&[][..], &[("authorization", bearer.as_str())]] {
            let Answered { headers, .. } = pages.ask("GET", path, shown, "").await;
            let value = |name: &str| headers.get(name).unwrap_or_else(|| panic!("{path} has no {name}")).to_str().unwrap();
            let policy = value("content-security-policy");
            assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"), "{policy}");
            assert_eq!([value("x-content-type-options"), value("referrer-policy")], ["nosniff", "no-referrer"]);
            let is_kept = path.starts_with("/console/assets/console");
            assert_eq!(value("cache-control") == "no-store", !is_kept, "{path}");
        }
    }
}

#[tokio::test]
async fn a_browser_without_the_token_is_asked_for_it_and_a_program_is_refused() {
    let pages = pages(true, 1).await;
    for path in PAGES.iter().chain(&["/console/events?of=/console", "/console/x"]) {
        let browser = pages.ask("GET", path, &[("accept", "text/html,*/*")], "").await;
        assert_eq!(
            (browser.status, browser.headers.get("location").unwrap().to_str().unwrap()),
            (303, "/console/login"),
            "{path}"
        );
        let program = pages.get(path).await;
        assert_eq!(
            (program.status, program.headers.get("www-authenticate").unwrap().to_str().unwrap()),
            (401, "Bearer"),
            "{path}"
        );
        assert!(!program.text.contains("alert") && program.text.contains("Authorization: Bearer"), "{}", program.text);
    }
    // What the page that asks needs, and nothing else.
    let asks = pages.get("/console/login").await;
    assert!(asks.status == 200 && asks.text.contains("type=\"password\"") && !asks.text.contains(TOKEN), "{}", asks.text);
    assert_eq!(pages.get("/console/assets/console.css").await.status, 200);
    assert_eq!(pages.get("/console/assets/../access.rs").await.status, 404);

    let wrong = pages.ask("POST", "/console/login", &[], "token=wrong-horse-battery").await;
    assert!(wrong.status == 403 && wrong.headers.get("set-cookie").is_none() && wrong.text.contains("not the token"));
    for odd in ["", "token=", "t=x", "%%%", &"token=a".repeat(10_000)] {
        let odd = pages.ask("POST", "/console/login", &[], odd).await;
        assert!([403, 413].contains(&odd.status) && odd.headers.get("set-cookie").is_none(), "{}", odd.status);
    }
    let right = pages.ask("POST", "/console/login", &[], &format!("token={TOKEN}")).await;
    assert_eq!((right.status, right.headers.get("location").unwrap().to_str().unwrap()), (303, "/console"));
    let set = right.headers.get("set-cookie").unwrap().to_str().unwrap();
    let session = set.split(';').next().unwrap();
    let let_in = pages.ask("GET", "/console", &[("cookie", session)], "").await;
    assert!(let_in.status == 200 && let_in.text.contains("Sign out"), "{}", let_in.text);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(pages.ask("GET", "/console", &[("authorization", &bearer)], "").await.status, 200);

    let out = pages.ask("POST", "/console/logout", &[("cookie", session)], "").await;
    assert!(out.headers.get("set-cookie").unwrap().to_str().unwrap().starts_with("stoker_console=; Path=/console; Max-Age=0"));
}

#[tokio::test]
async fn without_a_token_another_name_that_leads_here_is_refused() {
    let pages = pages(false, 1).await;
    let request = Request::builder().uri("/console").header("host", "evil.example:8088").body(Body::empty()).unwrap();
    let response = pages.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 421);
    assert_eq!(pages.get("/console/login").await.status, 303, "there is nothing to sign in to");
    assert!(!pages.get("/console").await.text.contains("Sign out"));
}

#[tokio::test]
async fn nothing_can_be_changed_and_what_is_not_there_is_not_found() {
    let pages = pages(false, 1).await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in PAGES {
            assert_eq!(pages.ask(method, path, &[], "").await.status, 405, "{method} {path}");
        }
    }
    for path in
        ["/console/x", "/console/decisions/d2", "/console/decisions/1", "/console/assets/mod.rs", "/console/events?of=/metrics"]
    {
        assert_eq!(pages.get(path).await.status, 404, "{path}");
    }
}

/// The next piece of a stream.
async fn piece(body: &mut Body) -> Option<String> {
    let frame = tokio::time::timeout(Duration::from_mins(1), body.frame()).await.unwrap()?;
    Some(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
}

#[tokio::test]
async fn a_stream_begins_with_the_page_and_ends_before_its_connection_does() {
    let pages = pages(false, 1).await;
    tokio::time::pause();
    let begun = Instant::now();
    let response = pages.response("GET", "/console/events?of=%2Fconsole%2Fnodes%3Fq%3Dx", &[], "").await;
    assert_eq!(response.headers().get("content-type").unwrap(), "text/event-stream");
    let mut body = response.into_body();
    assert_eq!(piece(&mut body).await.unwrap(), "retry: 1000\n\n");
    let first = piece(&mut body).await.unwrap();
    assert!(first.starts_with("event: main\ndata: \"<h1>Nodes</h1>") && !first.contains("<script>"), "{first}");
    // One more browser is one too many while it lasts.
    assert_eq!(pages.get("/console/events?of=/console").await.status, 503);
    // Nothing changes, and so nothing is sent.
    assert_eq!(piece(&mut body).await, None);
    assert!(begun.elapsed() > STREAM / 2 && begun.elapsed() < LONGEST_ANSWER, "{:?}", begun.elapsed());
    drop(body);
    assert_eq!(pages.response("GET", "/console/events?of=/console", &[], "").await.status().as_u16(), 200);
}

#[tokio::test]
async fn streams_end_when_the_service_stops() {
    let pages = pages(false, 4).await;
    let mut body = pages.response("GET", "/console/events?of=/console", &[], "").await.into_body();
    assert!(piece(&mut body).await.unwrap().starts_with("retry") && piece(&mut body).await.unwrap().starts_with("event: main"));
    pages.stop.cancel();
    assert_eq!(piece(&mut body).await, None);
}

#[tokio::test]
async fn readers_of_one_moment_share_what_is_drawn() {
    let pages = pages(false, 1).await;
    let (first, again) = (pages.console.drawn(&Page::Now).await.1, pages.console.drawn(&Page::Now).await.1);
    assert!(Arc::ptr_eq(&first.html, &again.html));
    assert!(!pages.console.drawn(&Page::Decision(DecisionId(9))).await.1.is_found);
}
