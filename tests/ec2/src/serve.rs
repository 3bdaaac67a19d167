//! The peer on a loopback port.

use std::convert::Infallible;
use std::io;

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::Peer;

/// A peer that listens; it stops, and cuts what is open, when this is dropped.
#[derive(Debug)]
pub struct Served {
    url: String,
    task: JoinHandle<Infallible>,
}

/// Every service that Stoker calls, as `endpoints` in aws.yaml names it. One that is left out would be called at AWS itself.
pub const SERVICES: [&str; 9] =
    ["ec2", "sts", "eks", "ssm", "sqs", "service-quotas", "pricing", "cloud-watch", "savings-plans"];

/// The file `aws.yaml` of a supplier for a peer at that URL: its first region, and one node class, `gpu`.
pub fn aws_yaml(url: &str) -> String {
    let endpoints = SERVICES.map(|service| format!("{service}: {url}")).join(", ");
    let tags = "{ tags: { stoker.dev/discovery: prod } }";
    format!(
        "apiVersion: stoker.dev/v1alpha1\nkind: AwsSupplier\ncluster: {{ name: prod }}\nregions:\n- name: us-east-1\n  subnets: {tags}\n  \
         securityGroups: {tags}\n  endpoints: {{ {endpoints} }}\nnodeClasses:\n  gpu: {{ instanceProfile: stoker-node }}\n"
    )
}

impl Served {
    /// Its URL, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Peer {
    /// Listens on a loopback port.
    pub async fn listen(&self) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let peer = self.clone();
        let task = tokio::spawn(async move {
            // Dropped with the task, and every connection with it.
            let mut open = JoinSet::new();
            loop {
                while open.try_join_next().is_some() {}
                if let Ok((stream, _)) = listener.accept().await {
                    let peer = peer.clone();
                    let service = service_fn(move |request| over_http(peer.clone(), request));
                    open.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                }
            }
        });
        Served { url, task }
    }
}

/// A request over HTTP. The error of a lost answer has hyper close the connection without a byte.
async fn over_http(peer: Peer, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let answer = peer.answer(Request::from_parts(parts, body.to_vec())).await;
    let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))?;
    Ok(answer.map(|body| Full::new(Bytes::from(body))))
}
