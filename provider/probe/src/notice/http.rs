//! One question to a metadata service: a connection of its own, plain HTTP, with a deadline. Proxies are not asked: the service is on
//! the machine's own link.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The longest answer that is read.
const LONGEST: usize = 64 << 10;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nobody is there, or the connection broke.
    #[error("no connection")]
    Connection(#[source] std::io::Error),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Late(Duration),
    /// It is not HTTP.
    #[error("not an answer")]
    Protocol(#[source] hyper::Error),
    /// The body broke off or is too long.
    #[error("not a body: {0}")]
    Body(String),
    /// The service answered with an error.
    #[error("status {0}")]
    Status(StatusCode),
    /// The answer is not what the service's documentation says.
    #[error("an answer that cannot be read: {0}")]
    Content(String),
    /// The address given for the service is none.
    #[error("not an address: {0}")]
    Address(String),
}

/// Where a metadata service is.
#[derive(Debug, Clone)]
pub struct Service {
    base: String,
}

/// What it answered.
#[derive(Debug)]
pub struct Answer {
    /// Such as 404, which mostly means that nothing is announced.
    pub status: StatusCode,
    /// What a hanging question waits for the next of.
    pub etag: Option<String>,
    /// The body.
    pub text: String,
}

impl Answer {
    /// The body of a success.
    pub fn success(self) -> Result<String, Fault> {
        if self.status.is_success() { Ok(self.text) } else { Err(Fault::Status(self.status)) }
    }
}

impl Service {
    /// `http://host[:port]`.
    pub fn at(base: &str) -> Self {
        Self { base: base.trim_end_matches('/').to_owned() }
    }

    /// Asks and waits so long for the answer.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        patience: Duration,
    ) -> Result<Answer, Fault> {
        tokio::time::timeout(patience, self.exchange(method, path, headers)).await.unwrap_or(Err(Fault::Late(patience)))
    }

    async fn exchange(&self, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Result<Answer, Fault> {
        let host = self.base.strip_prefix("http://").ok_or_else(|| Fault::Address(self.base.clone()))?;
        let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| Fault::Address(path.to_owned()))?;
        let value =
            |text: &str| HeaderValue::from_str(text).map_err(|_| Fault::Content("a header of the service's making".to_owned()));
        request.headers_mut().insert(http::header::HOST, value(host)?);
        for (name, text) in headers {
            request.headers_mut().insert(HeaderName::from_static(name), value(text)?);
        }

        let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
        let stream = connecting.map_err(|_| Fault::Late(CONNECT))?.map_err(Fault::Connection)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Fault::Protocol)?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(Fault::Protocol)?;
            let status = response.status();
            let etag = response.headers().get(http::header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
            let body =
                Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| Fault::Body(error.to_string()))?;
            let text = String::from_utf8(body.to_bytes().to_vec()).map_err(|error| Fault::Body(error.to_string()))?;
            Ok(Answer { status, etag, text })
        };
        tokio::pin!(exchange);
        // The connection is driven for as long as the answer takes.
        tokio::select! {
            biased;
            answer = &mut exchange => answer,
            ended = connection => match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(Fault::Protocol(error)),
            },
        }
    }
}
