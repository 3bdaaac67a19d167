//! How requests are taken in: each has a deadline, and all of them together bounded memory.
//!
//! A message says how long it is before it comes. It is read only once there is room for all of it,
//! and its room is free again when nothing needs the message any more.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::bytes::{Buf as _, Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use crate::listener::{PeerInfo, Share, SharedByAddress};

/// Bytes that are counted as one.
const UNIT: usize = 1 << 10;

/// How many bytes a second a message must come in at, once there is room for it: what the smallest
/// links between nodes carry many times over.
const PACE: u32 = 32 << 20;

/// How far behind that it may be.
const BEHIND: Duration = Duration::from_millis(500);

/// What precedes a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// How requests are taken in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intake {
    /// Bytes of requests at once.
    pub(super) overall: usize,
    /// Bytes of requests of one address at once, and so of a request.
    pub(super) each: usize,
    /// How long a request may take until its length is known, and then, once there is room for it,
    /// until all of it is here. It must also keep [`PACE`]: who claims room and sends nothing loses
    /// it at once, so that those who wait for room have their turn.
    pub(super) within: Duration,
}

/// A service whose requests are taken in so.
#[derive(Debug, Clone)]
pub(super) struct TakenIn<S> {
    inner: S,
    room: Arc<SharedByAddress>,
    within: Duration,
}

/// The room that a request takes. Whoever works on it after its call has ended keeps this.
pub(super) type HeldRoom = Arc<OnceLock<Share>>;

impl Intake {
    /// Takes in the requests of a service.
    pub(super) fn of<S>(self, inner: S) -> TakenIn<S> {
        let room = SharedByAddress::new(self.overall / UNIT, self.each / UNIT);
        TakenIn { inner, room: Arc::new(room), within: self.within }
    }
}

impl<S: NamedService> NamedService for TakenIn<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for TakenIn<S>
where
    S: Service<http::Request<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (mut head, body) = request.into_parts();
        let taken = HeldRoom::default();
        head.extensions.insert(Arc::clone(&taken));
        let incoming = Incoming {
            body,
            address: address_of(&head.extensions),
            room: Arc::clone(&self.room),
            held: Arc::clone(&taken),
            within: self.within,
            begun: Instant::now(),
            stage: Stage::Prefix(BytesMut::new()),
        };
        let answered = self.inner.call(http::Request::from_parts(head, Body::new(StreamBody::new(incoming.frames()))));
        Box::pin(async move {
            let answer = answered.await;
            drop(taken);
            answer
        })
    }
}

/// Where a request comes from. All of those that came over no connection count as one.
pub(super) fn address_of(extensions: &http::Extensions) -> IpAddr {
    extensions.get::<PeerInfo>().map_or(IpAddr::from([0; 4]), |peer| peer.remote.ip())
}

/// A request on its way in.
struct Incoming {
    body: Body,
    address: IpAddr,
    room: Arc<SharedByAddress>,
    held: HeldRoom,
    within: Duration,
    /// When it came, and then when there was room for the message.
    begun: Instant,
    stage: Stage,
}

/// How far a request has come.
enum Stage {
    /// Its length is not known yet: what has come until now.
    Prefix(BytesMut),
    /// So many bytes have come, and so many are missing.
    Message {
        /// That have come.
        come: usize,
        /// That are missing.
        missing: usize,
    },
}

impl Incoming {
    fn frames(self) -> impl futures::Stream<Item = Result<Frame<Bytes>, Status>> + Send {
        futures::stream::unfold(Some(self), |incoming| async {
            let mut incoming = incoming?;
            match incoming.next().await {
                Ok(Some(frame)) => Some((Ok(frame), Some(incoming))),
                Ok(None) => None,
                Err(status) => Some((Err(status), None)),
            }
        })
    }

    /// The next frame. The first one of data waits until there is room for the message.
    async fn next(&mut self) -> Result<Option<Frame<Bytes>>, Status> {
        loop {
            let late = |_| Status::deadline_exceeded(format!("the request did not come within {:?}, or stopped", self.within));
            let frame = timeout_at(self.due(), self.body.frame()).await.map_err(late)?;
            let Some(frame) = frame.transpose()? else { return Ok(None) };
            let Ok(data) = frame.into_data() else { continue };
            match &mut self.stage {
                Stage::Prefix(prefix) => {
                    prefix.extend_from_slice(&data);
                    let Some(mut length) = prefix.get(1..PREFIX) else { continue };
                    let length = usize::try_from(length.get_u32()).unwrap_or(usize::MAX);
                    let begun = prefix.split().freeze();
                    self.begin(length).await;
                    self.count(begun.len() - PREFIX)?;
                    return Ok(Some(Frame::data(begun)));
                }
                Stage::Message { .. } => {
                    self.count(data.len())?;
                    return Ok(Some(Frame::data(data)));
                }
            }
        }
    }

    /// Waits until there is room for a message of that length. For one that is too long there is
    /// none: it is refused.
    async fn begin(&mut self, length: usize) {
        if length <= self.room.each() * UNIT {
            let share = self.room.acquire(self.address, length.div_ceil(UNIT)).await;
            // It is empty: a request begins once.
            let _ = self.held.set(share);
            self.begun = Instant::now();
        }
        self.stage = Stage::Message { come: 0, missing: length };
    }

    /// Until when the next frame must be here.
    fn due(&self) -> Instant {
        let deadline = self.begun + self.within;
        let Stage::Message { come, missing: 1.. } = self.stage else { return deadline };
        let by_pace = Duration::from_secs(u64::try_from(come).unwrap_or(u64::MAX)) / PACE;
        deadline.min(self.begun + BEHIND + by_pace)
    }

    fn count(&mut self, came: usize) -> Result<(), Status> {
        let Stage::Message { come, missing } = &mut self.stage else { return Ok(()) };
        let more = || Status::invalid_argument("the request has more than one message");
        *missing = missing.checked_sub(came).ok_or_else(more)?;
        *come += came;
        Ok(())
    }
}
