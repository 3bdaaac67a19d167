//! Answers, in the protocol of whoever asked.

use http::{HeaderName, HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::request::{Asked, Protocol};
use crate::xml::Xml;

/// A refusal: an error of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into() }
    }

    /// One with status 400.
    pub(crate) fn bad(code: &str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    /// A parameter that cannot be.
    pub(crate) fn value(message: impl Into<String>) -> Self {
        Self::bad("InvalidParameterValue", message)
    }
}

/// What was done, not yet in a protocol.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// What stands in the element of the answer.
    Xml(String),
    /// All of it.
    Json(Value),
}

/// The text of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) status: u16,
    pub(crate) media: &'static str,
    pub(crate) text: String,
    /// The code of an error, where it stands in a header.
    pub(crate) error: Option<String>,
}

const XML: &str = "text/xml;charset=UTF-8";
const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The text of what was done or refused.
pub(crate) fn text(asked: &Asked, done: Result<Body, Refusal>, request: &str) -> Wire {
    match done {
        Ok(Body::Xml(inner)) => xml(&asked.action, asked.protocol, &inner, request),
        Ok(Body::Json(value)) => Wire { status: 200, media: json_media(asked), text: value.to_string(), error: None },
        Err(refusal) => refused(asked, refusal, request),
    }
}

fn xml(action: &str, protocol: Protocol, inner: &str, request: &str) -> Wire {
    let text = if protocol == Protocol::Ec2 {
        let space = "http://ec2.amazonaws.com/doc/2016-11-15/";
        format!("{HEAD}<{action}Response xmlns=\"{space}\"><requestId>{request}</requestId>{inner}</{action}Response>")
    } else {
        let space = "https://sts.amazonaws.com/doc/2011-06-15/";
        let meta = format!("<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>");
        format!("{HEAD}<{action}Response xmlns=\"{space}\"><{action}Result>{inner}</{action}Result>{meta}</{action}Response>")
    };
    Wire { status: 200, media: XML, text, error: None }
}

fn refused(asked: &Asked, refusal: Refusal, request: &str) -> Wire {
    let Refusal { status, code, message } = refusal;
    let pair = |xml: &mut Xml| {
        xml.text("Code", &code);
        xml.text("Message", &message);
    };
    let (media, text, error) = match asked.protocol {
        Protocol::Ec2 => {
            let error = |xml: &mut Xml| {
                xml.node("Errors", |xml| xml.node("Error", pair));
                xml.text("RequestID", request);
            };
            (XML, HEAD.to_owned() + &Xml::of(|xml| xml.node("Response", error)), None)
        }
        Protocol::Query => {
            let inner = Xml::of(pair);
            let error = format!("<Error><Type>Sender</Type>{inner}</Error><RequestId>{request}</RequestId>");
            let space = "https://sts.amazonaws.com/doc/2011-06-15/";
            (XML, format!("{HEAD}<ErrorResponse xmlns=\"{space}\">{error}</ErrorResponse>"), None)
        }
        Protocol::Json => {
            let space = if asked.service == "sqs" { "com.amazonaws.sqs#" } else { "" };
            (json_media(asked), json!({ "__type": format!("{space}{code}"), "message": message }).to_string(), None)
        }
        Protocol::Rest => (json_media(asked), json!({ "message": message }).to_string(), Some(code.clone())),
    };
    Wire { status, media, text, error }
}

fn json_media(asked: &Asked) -> &'static str {
    match (asked.protocol, asked.service.as_str()) {
        (Protocol::Rest, _) => "application/json",
        (_, "sqs") => "application/x-amz-json-1.0",
        _ => "application/x-amz-json-1.1",
    }
}

/// The answer over HTTP.
pub(crate) fn response(text: Wire, request: &str, now: Timestamp) -> Response<Vec<u8>> {
    let mut response = Response::new(text.text.into_bytes());
    *response.status_mut() = StatusCode::from_u16(text.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let headers = [
        ("date", date.as_str()),
        ("content-type", text.media),
        ("x-amzn-requestid", request),
        ("x-amzn-errortype", text.error.as_deref().unwrap_or_default()),
    ];
    for (name, value) in headers.into_iter().filter(|(_, value)| !value.is_empty()) {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
