//! Why a call to AWS came to nothing.

use std::fmt;

use serde::Deserialize;

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// AWS answered with an error.
    #[error("{0}")]
    Said(Said),
    /// AWS was not reached: it knows nothing of the call.
    #[error("{action}: no connection: {why}")]
    NotSent {
        /// The call.
        action: &'static str,
        /// What the transport said.
        why: String,
    },
    /// The call was sent, and what came of it is not known.
    #[error("{action}: {why}")]
    NoAnswer {
        /// The call.
        action: &'static str,
        /// What came instead of an answer.
        why: String,
    },
    /// There is nothing to sign a call with.
    #[error("no AWS credentials: {0}")]
    NoCredentials(String),
}

/// An error that AWS answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// The call.
    pub(crate) action: &'static str,
    /// The status of the answer.
    pub(crate) status: u16,
    /// The code, such as `InsufficientInstanceCapacity`: what is decided by.
    pub(crate) code: String,
    /// The words.
    pub(crate) message: String,
    /// What AWS's support asks for.
    pub(crate) request_id: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, status, code, message, request_id } = self;
        write!(f, "{action}: {code}: {message} (HTTP {status}")?;
        if !request_id.is_empty() {
            write!(f, ", request {request_id}")?;
        }
        f.write_str(")")
    }
}

/// What an error says of the call, whatever was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Too many calls: slow down.
    Throttled,
    /// The credentials do not count, or not any more.
    Credentials,
    /// A fault on AWS's side, of which nobody knows what came of the call.
    Transient,
    /// The answer to just this call.
    Final,
}

impl Said {
    /// Its class: by the code first, as a stock-out is a status 500 too.
    pub(crate) fn class(&self) -> Class {
        let code = self.code.as_str();
        match code {
            "RequestLimitExceeded" | "EC2ThrottledException" | "BandwidthLimitExceeded" | "TooManyRequestsException" => {
                Class::Throttled
            }
            _ if code.starts_with("Throttl") => Class::Throttled,
            "ExpiredToken"
            | "ExpiredTokenException"
            | "RequestExpired"
            | "InvalidClientTokenId"
            | "UnrecognizedClientException"
            | "SignatureDoesNotMatch"
            | "IncompleteSignature"
            | "InvalidSignatureException" => Class::Credentials,
            // EC2 says so of a key that is gone, and of a clock that is ahead; of what may not be done it has other words.
            "AuthFailure" if self.message.contains("not able to validate") => Class::Credentials,
            "InternalError"
            | "InternalFailure"
            | "InternalServerError"
            | "ServerInternal"
            | "ServiceUnavailable"
            | "Unavailable"
            | "InsufficientAddressCapacity"
            | "RetryableError"
            | "RequestTimeout" => Class::Transient,
            _ => Class::Final,
        }
    }
}

impl Failure {
    /// Its class; what was not answered is transient.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Said(said) => said.class(),
            Self::NotSent { .. } | Self::NoAnswer { .. } => Class::Transient,
            Self::NoCredentials(_) => Class::Credentials,
        }
    }

    /// The action that IAM does not allow; `None` where it is not that.
    pub(crate) fn denied(&self) -> Option<String> {
        let Self::Said(said) = self else { return None };
        let is_denial = matches!(
            said.code.as_str(),
            "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" | "AccessDenied.Exception"
        );
        is_denial.then(|| said.action.to_owned())
    }

    /// The code that AWS answered with; `None` where it did not answer.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Said(said) => Some(&said.code),
            _ => None,
        }
    }
}

/// An error of EC2, or of STS and others of the query protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct XmlError {
    #[serde(rename = "Errors")]
    errors: XmlErrors,
    #[serde(rename = "Error")]
    error: Option<CodeAndMessage>,
    #[serde(rename = "RequestID", alias = "RequestId")]
    request_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct XmlErrors {
    #[serde(rename = "Error")]
    error: Option<CodeAndMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CodeAndMessage {
    #[serde(rename = "Code")]
    code: String,
    #[serde(rename = "Message")]
    message: String,
}

/// An error of the JSON protocols. The type may have a namespace before `#`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsonError {
    #[serde(rename = "__type")]
    kind: String,
    #[serde(alias = "Message")]
    message: String,
}

/// The error in an answer whose status is none of success.
pub(crate) fn of_answer(action: &'static str, answer: &http::Response<Vec<u8>>) -> Failure {
    let status = answer.status().as_u16();
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(answer.body());
    let (code, message, request_id) = if text.trim_start().starts_with('{') {
        let JsonError { kind, message } = serde_json::from_str(&text).unwrap_or_default();
        // The header of the REST services has more after a colon, and SQS keeps the codes of its older protocol in another.
        let named = header("x-amzn-errortype").split(':').next().unwrap_or_default();
        let kind = if kind.is_empty() { named } else { &kind };
        let kind = kind.rsplit('#').next().unwrap_or_default().to_owned();
        (kind, message, header("x-amzn-requestid").to_owned())
    } else {
        let XmlError { errors, error, request_id } = quick_xml::de::from_str(&text).unwrap_or_default();
        let CodeAndMessage { code, message } = errors.error.or(error).unwrap_or_default();
        (code, message, request_id)
    };
    if code.is_empty() {
        // A proxy, a load balancer: nobody who knows of the call.
        let shown: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
        return Failure::NoAnswer { action, why: format!("HTTP {status} without an error code: {shown:?}") };
    }
    Failure::Said(Said { action, status, code, message, request_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> http::Response<Vec<u8>> {
        http::Response::builder().status(status).body(body.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_stock_out_is_no_fault_of_awss_although_its_status_says_so() {
        let body = "<?xml version=\"1.0\"?><Response><Errors><Error><Code>InsufficientInstanceCapacity</Code><Message>none \
                    left</Message></Error></Errors><RequestID>r-1</RequestID></Response>";
        let failure = of_answer("RunInstances", &answer(500, body));
        assert_eq!(failure.class(), Class::Final);
        assert_eq!(failure.to_string(), "RunInstances: InsufficientInstanceCapacity: none left (HTTP 500, request r-1)");
    }

    #[test]
    fn errors_of_every_protocol_are_read() {
        let json = answer(400, r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"no such queue"}"#);
        assert_eq!(of_answer("ReceiveMessage", &json).code(), Some("QueueDoesNotExist"));
        let rest = http::Response::builder()
            .status(404)
            .header("x-amzn-errortype", "ResourceNotFoundException:http://x")
            .body(b"{}".to_vec());
        assert_eq!(of_answer("DescribeCluster", &rest.unwrap()).code(), Some("ResourceNotFoundException"));
        let sts =
            answer(403, "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredToken</Code><Message/></Error></ErrorResponse>");
        assert_eq!(of_answer("GetCallerIdentity", &sts).class(), Class::Credentials);
    }

    #[test]
    fn what_has_no_code_is_no_answer() {
        for body in ["", "<html><body>Bad gateway</body></html>", "{}", "<Response>"] {
            let failure = of_answer("RunInstances", &answer(502, body));
            assert!(matches!(failure, Failure::NoAnswer { .. }), "{body}: {failure}");
        }
    }
}
