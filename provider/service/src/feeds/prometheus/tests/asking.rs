use stoker_core::policy::rules::demand::NoLevel;

use super::super::ask::NoAsker;
use super::*;

#[tokio::test]
async fn every_way_not_to_answer_is_told_apart() {
    let prometheus = Prometheus::start(Arc::new(|query| match query {
        "error" => (422, r#"{"status":"error","errorType":"execution","error":"too many samples"}"#.to_owned()),
        "timeout" => (503, r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#.to_owned()),
        "proxy" => (502, "<html>bad gateway</html>".to_owned()),
        "moved" => (302, String::new()),
        "garbage" => (200, "<html>sign in</html>".to_owned()),
        "half" => (200, r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{}"#.to_owned()),
        "matrix" => (200, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.to_owned()),
        "large" => (200, " ".repeat(5_000)),
        "scalar" => (200, r#"{"status":"success","data":{"resultType":"scalar","result":[1800000000.5,"7"]}}"#.to_owned()),
        _ => vector(&[row(&[("a", "b")], 0.0, &1)]),
    }))
    .await;
    let mut asker = prometheus.asker();
    asker.most_bytes = 4_000;
    for (query, expected, text) in [
        ("error", NoLevel::Refused, "Prometheus answered execution: too many samples"),
        ("timeout", NoLevel::TimedOut, "no answer in time"),
        ("slow", NoLevel::TimedOut, "no answer in time"),
        ("proxy", NoLevel::Refused, "Prometheus answered 502 Bad Gateway"),
        ("moved", NoLevel::Refused, "Prometheus answered 302 Found"),
        ("garbage", NoLevel::Malformed, "the answer does not come from a Prometheus: expected value at line 1 column 1"),
        ("matrix", NoLevel::Malformed, "the answer does not come from a Prometheus: a matrix instead of a vector"),
        ("large", NoLevel::TooLarge, "the answer is too large"),
    ] {
        let failed = asker.ask(query).await.unwrap_err();
        assert_eq!((failed.no_level(), failed.to_string().as_str()), (expected, text), "{query}");
    }
    assert_eq!(asker.ask("half").await.unwrap_err().no_level(), NoLevel::Malformed);
    assert_eq!(asker.ask("up").await.unwrap(), [row(&[("a", "b")], 0.0, &1)]);
    let scalar = asker.ask("scalar").await.unwrap();
    assert_eq!((scalar.len(), scalar[0].number()), (1, 7.0));
    // A port on which nobody listens any more.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nobody = Asker::new(&Connection { url: format!("http://{closed}"), token_file: None, ca: None }).unwrap();
    let failed = nobody.ask("up").await.unwrap_err();
    assert_eq!(failed.no_level(), NoLevel::Unreachable);
    assert!(failed.to_string().contains("refused"), "{failed}");
}

#[tokio::test]
async fn a_token_is_read_anew_for_each_question() {
    let prometheus = Prometheus::start(Arc::new(|_| vector(&[]))).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let connection = Connection { token_file: Some(file.path().to_owned()), ..prometheus.connection() };
    std::fs::write(file.path(), "first\n").unwrap();
    crate::listener::install_crypto();
    let asker = Asker::new(&connection).unwrap();
    asker.ask("up").await.unwrap();
    std::fs::write(file.path(), "second").unwrap();
    asker.ask("up").await.unwrap();
    assert_eq!(*prometheus.tokens.lock().unwrap(), ["Bearer first", "Bearer second"]);
    std::fs::remove_file(file.path()).unwrap();
    assert_eq!(asker.ask("up").await.unwrap_err().no_level(), NoLevel::Refused);
}

#[test]
fn a_connection_that_cannot_be_is_refused_at_the_start() {
    crate::listener::install_crypto();
    let with = |url: &str, ca: Option<&str>| {
        let connection = Connection { url: url.to_owned(), token_file: None, ca: ca.map(Into::into) };
        Asker::new(&connection).map(|_| ()).unwrap_err()
    };
    assert!(matches!(with("prometheus:9090", None), NoAsker::Url { .. }));
    assert!(matches!(with("http://", None), NoAsker::Url { .. }));
    assert!(matches!(with("https://prometheus", Some("/nowhere/ca.pem")), NoAsker::Read { .. }));
    assert!(matches!(with("https://prometheus", Some("/dev/null")), NoAsker::Read { .. }));
    let empty = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(with("https://prometheus", empty.path().to_str()), NoAsker::NoCertificate { .. }));
}
