//! Any supplier served as a plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use stoker_core::base::engine_clock::Wall;
use stoker_core::base::ids::{ClusterName, ProviderId};
use stoker_core::facts::supply::Instance;
use stoker_core::market::price::{PriceBook, QuoteKind};
use stoker_proto::supplier as wire;
use stoker_proto::supplier::supplier_server::{Supplier as Service, SupplierServer};
use stoker_service::clock::Clock;
use stoker_service::suppliers::{Pace, Supplier};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::{PROTOCOL, convert};

/// Machines on a page of a listing.
const PAGE: usize = 500;

/// A supplier behind the protocol: one scope, all regions of all its clouds.
pub struct Served {
    supplier: Arc<dyn Supplier>,
    cluster: ClusterName,
    clock: Clock,
    scopes: Vec<wire::Scope>,
}

impl Served {
    /// Serves `supplier`, which makes machines for `cluster`.
    pub fn new(supplier: Arc<dyn Supplier>, cluster: ClusterName, clock: Clock, scopes: Vec<wire::Scope>) -> Self {
        Self { supplier, cluster, clock, scopes }
    }

    /// A scope for each cloud of the price tables.
    pub fn scopes_of(book: &PriceBook) -> Vec<wire::Scope> {
        let mut regions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (market, _) in book.entries() {
            regions.entry(market.place.cloud.to_string()).or_default().insert(market.place.region.to_string());
        }
        let scope = |(cloud, regions): (String, BTreeSet<String>)| wire::Scope {
            name: cloud.clone(),
            cloud,
            regions: regions.into_iter().collect(),
        };
        regions.into_iter().map(scope).collect()
    }

    /// Serves on a socket until `stop`. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// Where the socket cannot be made, or the transport fails.
    pub async fn listen(self, path: &Path, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let is_left_over = std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
        if is_left_over {
            std::fs::remove_file(path)?;
        }
        let incoming = UnixListenerStream::new(UnixListener::bind(path)?);
        let served = Server::builder().add_service(SupplierServer::new(self)).serve_with_incoming_shutdown(incoming, stop);
        let ended = served.await.map_err(std::io::Error::other);
        let _ = std::fs::remove_file(path);
        ended
    }

    fn is_of(&self, cluster: &str) -> Result<(), Status> {
        if cluster == self.cluster.as_str() {
            return Ok(());
        }
        Err(Status::invalid_argument(format!("this plugin serves cluster {}, not {cluster:?}", self.cluster)))
    }
}

type Pages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Service for Served {
    type ListStream = Pages<wire::ListResponse>;
    type NoticesStream = Pages<wire::Notice>;

    async fn describe(&self, _: Request<wire::DescribeRequest>) -> Result<Response<wire::DescribeResponse>, Status> {
        let facts = self.supplier.market_facts(Wall(self.clock.now())).await;
        let classes = facts.map_err(|error| Status::unavailable(error.to_string()))?.node_classes.unwrap_or_default();
        Ok(Response::new(wire::DescribeResponse {
            name: self.supplier.name().to_string(),
            protocol: PROTOCOL,
            account: self.supplier.name().to_string(),
            scopes: self.scopes.clone(),
            node_classes: classes.iter().map(ToString::to_string).collect(),
            max_in_flight: u32::try_from(self.supplier.max_in_flight()).unwrap_or(u32::MAX),
            max_batch: 100,
            calls_per_second: self.supplier.pace().map(Pace::calls_per_second).unwrap_or_default(),
            burst: self.supplier.pace().map(Pace::burst).unwrap_or_default(),
        }))
    }

    async fn launch(&self, asked: Request<wire::LaunchRequest>) -> Result<Response<wire::LaunchResponse>, Status> {
        let asked = asked.into_inner();
        self.is_of(&asked.cluster)?;
        let batch = convert::launches(&asked).map_err(|why| Status::invalid_argument(why.to_string()))?;
        let outcomes = self.supplier.launch(self.clock.now(), batch).await;
        let outcomes = outcomes.into_iter().map(|(key, outcome)| convert::to_outcome(&key, outcome)).collect();
        Ok(Response::new(wire::LaunchResponse { outcomes }))
    }

    async fn list(&self, asked: Request<wire::ListRequest>) -> Result<Response<Self::ListStream>, Status> {
        let wire::ListRequest { cluster, scope } = asked.into_inner();
        self.is_of(&cluster)?;
        let Some(scope) = self.scopes.iter().find(|known| known.name == scope) else {
            return Err(Status::not_found(format!("there is no scope {scope:?}")));
        };
        let seen = self.supplier.observe(self.clock.now()).await.map_err(|error| Status::unavailable(error.to_string()))?;
        let here = |machine: &wire::Instance| machine.cloud == scope.cloud && scope.regions.contains(&machine.region);
        let told = |made: &Arc<Instance>| wire::Instance {
            impaired: seen.impaired.get(&made.provider_id).cloned().unwrap_or_default(),
            ..convert::to_instance(made)
        };
        let instances: Vec<wire::Instance> = seen.instances.values().map(told).filter(here).collect();
        let mut pages: Vec<Result<wire::ListResponse, Status>> = instances
            .chunks(PAGE)
            .map(|page| Ok(wire::ListResponse { instances: page.to_vec(), ..wire::ListResponse::default() }))
            .collect();
        let as_of = Some(convert::to_moment(seen.oldest()));
        let gone = seen.ended.iter().map(|(machine, why)| convert::to_gone(machine, *why)).collect();
        pages.push(Ok(wire::ListResponse { instances: Vec::new(), last: true, complete: seen.complete, as_of, gone }));
        Ok(Response::new(Box::pin(futures::stream::iter(pages))))
    }

    async fn terminate(&self, asked: Request<wire::TerminateRequest>) -> Result<Response<wire::TerminateResponse>, Status> {
        let wire::TerminateRequest { cluster, provider_ids } = asked.into_inner();
        self.is_of(&cluster)?;
        let ids: Result<Vec<ProviderId>, _> = provider_ids.into_iter().map(ProviderId::new).collect();
        let ids = ids.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let results = self.supplier.terminate(self.clock.now(), ids).await;
        let ended = results.into_iter().map(|(id, result)| wire::Ended {
            provider_id: id.to_string(),
            error: result.err().map(|error| error.message).unwrap_or_default(),
        });
        Ok(Response::new(wire::TerminateResponse { ended: ended.collect() }))
    }

    async fn markets(&self, _: Request<wire::MarketsRequest>) -> Result<Response<wire::MarketsResponse>, Status> {
        let facts = self.supplier.market_facts(Wall(self.clock.now())).await;
        let facts = facts.map_err(|error| Status::unavailable(error.to_string()))?;
        let zone_names = facts.zone_names.into_iter().map(|((cloud, zone), name)| wire::ZoneName {
            cloud: cloud.to_string(),
            zone_id: zone.to_string(),
            name: name.to_string(),
        });
        let quotes = facts.quotes.into_iter().map(|(market, quote)| wire::Quote {
            cloud: market.place.cloud.to_string(),
            region: market.place.region.to_string(),
            zone_id: market.place.zone.to_string(),
            instance_type: market.place.instance_type.to_string(),
            capacity_type: convert::to_capacity_type(market.capacity_type).into(),
            micro_usd_per_hour: quote.price.0,
            as_of: quote.as_of.map(convert::to_moment),
            simulated: quote.kind == QuoteKind::Simulated,
        });
        Ok(Response::new(wire::MarketsResponse {
            zone_names: zone_names.collect(),
            quotes: quotes.collect(),
            quotas: facts.quotas.iter().map(|(key, fact)| convert::to_quota(key, fact)).collect(),
            reservations: facts.reservations.iter().map(|(id, fact)| convert::to_reservation(id, fact)).collect(),
        }))
    }

    async fn notices(&self, _: Request<wire::NoticesRequest>) -> Result<Response<Self::NoticesStream>, Status> {
        Err(Status::unimplemented("this plugin lists what befalls machines, and has no stream of it"))
    }
}
