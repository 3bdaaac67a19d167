use http::{Method, StatusCode};
use jiff::SignedDuration;
use serde_json::Value;
use stoker_fake_apiserver::{ApiServer, failure};

use super::*;

const SERVER: &str = "/api/v1/namespaces/stoker/secrets/stoker-tls";
const CLIENT: &str = "/api/v1/namespaces/kube-system/secrets/stoker-client";
const CA: &str = "/api/v1/namespaces/stoker-probe/configmaps/stoker-ca";

fn cluster() -> ApiServer {
    let server = ApiServer::new(Timestamp::now);
    server.serve_kind("secrets");
    server.serve_kind("configmaps");
    server
}

fn wanted() -> Wanted {
    let name = |text: &str| text.parse::<ObjectName>().unwrap();
    Wanted {
        server: name("stoker/stoker-tls"),
        clients: Some(name("kube-system/stoker-client")),
        ca: Some(name("stoker-probe/stoker-ca")),
        server_names: vec!["stoker.stoker.svc".to_owned(), "192.0.2.1".to_owned()],
        client_names: vec!["cluster-autoscaler".to_owned()],
        force: false,
    }
}

fn in_days(days: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_hours(days * 24)
}

/// What spoils a set.
type Break = fn(&ApiServer, &mut Wanted);

/// The data of an object, decoded.
fn data(server: &ApiServer, path: &str) -> BTreeMap<String, String> {
    let object = server.get(path).unwrap();
    let text = |value: &Value| {
        let text = value.as_str().unwrap();
        if path == CA { text.to_owned() } else { String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap() }
    };
    object["data"].as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

#[tokio::test]
async fn a_set_is_made_once_and_left_alone_until_a_third_of_its_time_is_left() {
    let (server, wanted) = (cluster(), wanted());
    let made = keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
    assert_eq!((made.renewed.as_deref(), made.written.len()), (Some("there was none"), 3));
    assert!(made.until > in_days(364) && made.until < in_days(366), "{made:?}");
    let (tls, client, ca) = (data(&server, SERVER), data(&server, CLIENT), data(&server, CA));
    assert_eq!(tls.keys().collect::<Vec<_>>(), ["ca.crt", "server.crt", "server.key"]);
    assert_eq!(client.keys().collect::<Vec<_>>(), ["ca.crt", "client.crt", "client.key"]);
    assert_eq!((tls.get("ca.crt"), client.get("ca.crt")), (ca.get("ca.crt"), ca.get("ca.crt")));

    server.take_writes();
    let left = keep(&server.client(), &wanted, in_days(240)).await.unwrap();
    assert_eq!(left, Kept { until: made.until, renewed: None, written: Vec::new() });
    assert_eq!(server.take_writes().len(), 0);
    let renewed = keep(&server.client(), &wanted, in_days(250)).await.unwrap();
    assert_eq!(renewed.renewed.as_deref(), Some("the authority's certificate was valid for 115 more days"));
    assert!(data(&server, SERVER) != tls && data(&server, CA) != ca);
}

#[tokio::test]
async fn objects_that_are_there_and_empty_are_filled_without_the_right_to_create_any() {
    let server = cluster();
    for (path, kind) in [(SERVER, "Secret"), (CLIENT, "Secret"), (CA, "ConfigMap")] {
        server.put(path, json!({ "apiVersion": "v1", "kind": kind, "metadata": { "labels": { "kept": "yes" } } }));
    }
    server.answer(|_, call| (call.method == Method::POST).then(|| failure(StatusCode::FORBIDDEN, "no")));
    let made = keep(&server.client(), &wanted(), Timestamp::now()).await.unwrap();
    assert_eq!(made.written.len(), 3);
    assert_eq!(server.get(SERVER).unwrap()["metadata"]["labels"]["kept"], "yes");
}

#[tokio::test]
async fn what_does_not_fit_is_made_again_as_a_whole() {
    let name = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let cases: [(Break, &str); 6] = [
        (|server, _| drop(server.remove(CLIENT)), "server and clients were of different authorities"),
        (
            |server, _| server.edit(SERVER, |secret| secret["data"]["server.key"] = json!("bm8=")),
            "server's key could not be read",
        ),
        (
            |server, _| server.edit(CLIENT, |secret| drop(secret["data"].as_object_mut().unwrap().remove("client.crt"))),
            "there was no client.crt",
        ),
        (
            |server, _| server.edit(SERVER, |secret| secret["data"]["server.crt"] = secret["data"]["ca.crt"].clone()),
            "server's certificate was of",
        ),
        (
            |_, wanted| wanted.server_names.push("stoker.elsewhere.svc".to_owned()),
            "server's certificate did not name stoker.elsewhere.svc",
        ),
        (|_, wanted| wanted.force = true, "asked for"),
    ];
    for (change, why) in cases {
        let (server, mut wanted) = (cluster(), wanted());
        keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
        change(&server, &mut wanted);
        let again = keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
        assert!(again.renewed.as_deref().is_some_and(|is| is.starts_with(why)), "{why}: {again:?}");
        assert_eq!(data(&server, SERVER)["ca.crt"], data(&server, CLIENT)["ca.crt"]);
        wanted.force = false;
        assert_eq!(keep(&server.client(), &wanted, Timestamp::now()).await.unwrap().renewed, None, "{why}");
    }
    // A client of another name, in the server's own Secret.
    let server = cluster();
    let mut wanted = Wanted { clients: None, ca: None, client_names: name(&["a"]), ..wanted() };
    keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
    assert!(data(&server, SERVER).contains_key("client.key"));
    wanted.client_names = name(&["b"]);
    let again = keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
    assert_eq!(again.renewed.as_deref(), Some("client's certificate did not name b"));
}

#[tokio::test]
async fn the_authority_alone_is_written_again_where_it_is_lost() {
    let (server, wanted) = (cluster(), wanted());
    keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
    let tls = data(&server, SERVER);
    server.edit(CA, |object| object["data"]["ca.crt"] = json!("no certificate"));
    let again = keep(&server.client(), &wanted, Timestamp::now()).await.unwrap();
    assert_eq!((again.renewed, again.written), (None, vec!["stoker-probe/stoker-ca".parse().unwrap()]));
    assert_eq!((data(&server, CA).get("ca.crt"), data(&server, SERVER)), (tls.get("ca.crt"), tls.clone()));
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_with_its_object() {
    let server = cluster();
    server.answer(|_, call| (call.method == Method::POST).then(|| failure(StatusCode::FORBIDDEN, "secrets is forbidden")));
    let error = keep(&server.client(), &wanted(), Timestamp::now()).await.unwrap_err().to_string();
    let says = "Secret stoker/stoker-tls: could not be written: secrets is forbidden; its writer needs the verb patch on it, or create";
    assert!(error.starts_with(says), "{error}");
    server.answer(|_, _| Some(failure(StatusCode::FORBIDDEN, "secrets is forbidden")));
    let error = keep(&server.client(), &wanted(), Timestamp::now()).await.unwrap_err().to_string();
    assert!(error.ends_with("its reader needs the verb get on it"), "{error}");
}

#[test]
fn an_object_is_named_with_its_namespace() {
    assert_eq!("a/b.c".parse::<ObjectName>().unwrap().to_string(), "a/b.c");
    for bad in ["", "a", "/a", "a/", "a/b/c", "A/b", "a/b c"] {
        assert!(bad.parse::<ObjectName>().is_err(), "{bad:?}");
    }
}
