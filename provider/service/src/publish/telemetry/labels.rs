//! The values that metric labels may take: closed sets, so that no client can make new time series.

use stoker_core::facts::supply::{LaunchOutcome, RefusalKind};
use stoker_core::market::interruption::NoticeSource;
use stoker_core::state::record::State;

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The label's text.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

label!(/// Who announced that the cloud reclaims a machine.
    ReclaimSource {
        /// The supplier.
        Supplier = "supplier",
        /// The probe on it.
        Probe = "probe",
        /// Nobody: it was gone.
        Nobody = "nobody",
    }
);

impl From<NoticeSource> for ReclaimSource {
    fn from(source: NoticeSource) -> Self {
        match source {
            NoticeSource::Supplier => Self::Supplier,
            NoticeSource::Probe => Self::Probe,
        }
    }
}

label!(/// How a call ended. The gRPC codes in lower case.
    RpcCode {
        /// Answered.
        Ok = "ok",
        /// Abandoned: the client went away or its deadline passed before the answer was sent.
        Cancelled = "cancelled",
        /// A fault without a class.
        Unknown = "unknown",
        /// The request makes no sense.
        InvalidArgument = "invalid_argument",
        /// We gave up in time.
        DeadlineExceeded = "deadline_exceeded",
        /// No such thing.
        NotFound = "not_found",
        /// It is there already.
        AlreadyExists = "already_exists",
        /// Not for this client.
        PermissionDenied = "permission_denied",
        /// A limit is reached.
        ResourceExhausted = "resource_exhausted",
        /// Not in this state.
        FailedPrecondition = "failed_precondition",
        /// Overtaken.
        Aborted = "aborted",
        /// Beyond the end.
        OutOfRange = "out_of_range",
        /// No such method.
        Unimplemented = "unimplemented",
        /// A bug.
        Internal = "internal",
        /// Not now.
        Unavailable = "unavailable",
        /// Something was lost.
        DataLoss = "data_loss",
        /// Nobody knows who calls.
        Unauthenticated = "unauthenticated",
    }
);

impl From<tonic::Code> for RpcCode {
    fn from(code: tonic::Code) -> Self {
        use tonic::Code;
        match code {
            Code::Ok => Self::Ok,
            Code::Cancelled => Self::Cancelled,
            Code::Unknown => Self::Unknown,
            Code::InvalidArgument => Self::InvalidArgument,
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::PermissionDenied => Self::PermissionDenied,
            Code::ResourceExhausted => Self::ResourceExhausted,
            Code::FailedPrecondition => Self::FailedPrecondition,
            Code::Aborted => Self::Aborted,
            Code::OutOfRange => Self::OutOfRange,
            Code::Unimplemented => Self::Unimplemented,
            Code::Internal => Self::Internal,
            Code::Unavailable => Self::Unavailable,
            Code::DataLoss => Self::DataLoss,
            Code::Unauthenticated => Self::Unauthenticated,
        }
    }
}

macro_rules! methods {
    ($($variant:ident = $text:literal in $service:literal),* $(,)?) => {
        label!(/// The methods that are served; any other path is `other`.
            Method {
                $(#[doc = concat!("`", $text, "` of `", $service, "`.")] $variant = $text,)*
                /// Reflection, and paths that nobody serves.
                Other = "other",
            }
        );

        impl Method {
            /// The method of a request's path.
            pub fn of_path(path: &str) -> Self {
                match path {
                    $(concat!("/", $service, "/", $text) => Self::$variant,)*
                    _ => Self::Other,
                }
            }
        }
    };
}

methods! {
    NodeGroups = "NodeGroups" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupForNode = "NodeGroupForNode" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    PricingNodePrice = "PricingNodePrice" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    PricingPodPrice = "PricingPodPrice" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    GpuLabel = "GPULabel" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    GetAvailableGpuTypes = "GetAvailableGPUTypes" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    Cleanup = "Cleanup" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    Refresh = "Refresh" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupTargetSize = "NodeGroupTargetSize" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupIncreaseSize = "NodeGroupIncreaseSize" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupDeleteNodes = "NodeGroupDeleteNodes" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupDecreaseTargetSize = "NodeGroupDecreaseTargetSize" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupNodes = "NodeGroupNodes" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupTemplateNodeInfo = "NodeGroupTemplateNodeInfo" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    NodeGroupGetOptions = "NodeGroupGetOptions" in "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider",
    BestOptions = "BestOptions" in "grpcplugin.Expander",
    HealthCheck = "Check" in "grpc.health.v1.Health",
    HealthWatch = "Watch" in "grpc.health.v1.Health",
}

impl Method {
    /// Whether it is one of the calls that an autoscaler makes for every node or group, again and again, and that change nothing.
    pub const fn is_read(self) -> bool {
        matches!(
            self,
            Self::NodeGroups
                | Self::NodeGroupForNode
                | Self::NodeGroupTargetSize
                | Self::NodeGroupNodes
                | Self::NodeGroupTemplateNodeInfo
                | Self::NodeGroupGetOptions
                | Self::PricingNodePrice
                | Self::PricingPodPrice
        )
    }
}

label!(/// How a pass of the loop ended.
    PassResult {
        /// With a plan that was carried out, or with nothing to do.
        Done = "done",
        /// The facts were not complete enough to decide.
        Incomplete = "incomplete",
        /// The checker refused the plan.
        Refused = "refused",
        /// The plan could not be written down or carried out.
        Failed = "failed",
    }
);

label!(/// What was decided.
    DecisionKind {
        /// Buy a node.
        Launch = "launch",
        /// End a machine.
        Terminate = "terminate",
        /// Keep the autoscaler from removing a node.
        Hold = "hold",
        /// Take that back.
        Release = "release",
        /// Empty a node that is let go.
        Drain = "drain",
        /// Open a node again that was to go.
        Uncordon = "uncordon",
        /// Remove the Node object of a machine that is gone.
        RemoveNode = "remove_node",
    }
);

label!(/// How a launch ended.
    LaunchResult {
        /// The machine exists.
        Launched = "launched",
        /// No stock.
        OutOfCapacity = "out_of_capacity",
        /// No quota.
        QuotaExceeded = "quota_exceeded",
        /// Not allowed.
        Permission = "permission",
        /// Can never work.
        Config = "config",
        /// Did not join the cluster in time.
        BootTimeout = "boot_timeout",
        /// Nobody knows yet.
        Unclear = "unclear",
    }
);

impl From<RefusalKind> for LaunchResult {
    fn from(kind: RefusalKind) -> Self {
        match kind {
            RefusalKind::OutOfCapacity => Self::OutOfCapacity,
            RefusalKind::QuotaExceeded => Self::QuotaExceeded,
            RefusalKind::Permission => Self::Permission,
            RefusalKind::Config => Self::Config,
            RefusalKind::BootTimeout => Self::BootTimeout,
        }
    }
}

impl From<&LaunchOutcome> for LaunchResult {
    fn from(outcome: &LaunchOutcome) -> Self {
        match outcome {
            LaunchOutcome::Launched(_) => Self::Launched,
            LaunchOutcome::Refused(refusal) => refusal.kind.into(),
            LaunchOutcome::Unclear { .. } => Self::Unclear,
        }
    }
}

label!(/// Who ordered nodes.
    OrderSource {
        /// The autoscaler.
        Autoscaler = "autoscaler",
        /// The warm floor, where the autoscaler did not ask for it.
        Floor = "floor",
        /// A replacement of a node.
        Replacement = "replacement",
    }
);

label!(/// What became of an order.
    OrderResult {
        /// Written down; supply follows.
        Accepted = "accepted",
        /// Refused whole.
        Refused = "refused",
    }
);

label!(/// Why a deletion was refused.
    DeleteRefusal {
        /// The node works.
        Busy = "busy",
        /// Nobody knows whether the node works.
        Unknown = "unknown",
        /// A journal was lost a moment ago.
        Cautious = "cautious",
        /// The node is of another group.
        WrongGroup = "wrong_group",
    }
);

label!(/// Where a node stands between its order and its end.
    NodeState {
        /// Ordered.
        Wanted = "wanted",
        /// The supplier is asked.
        Launching = "launching",
        /// The machine exists.
        Booting = "booting",
        /// Its Node exists and was not Ready yet.
        Registered = "registered",
        /// Its Node was Ready.
        Ready = "ready",
        /// Could not be had.
        Failed = "failed",
        /// Not wanted any more, and perhaps bought.
        Cancelled = "cancelled",
        /// On its way out.
        Deleting = "deleting",
    }
);

impl From<&State> for NodeState {
    fn from(state: &State) -> Self {
        match state {
            State::Wanted => Self::Wanted,
            State::Launching { .. } => Self::Launching,
            State::Booting { .. } => Self::Booting,
            State::Registered { ready_at: None, .. } => Self::Registered,
            State::Registered { ready_at: Some(_), .. } => Self::Ready,
            State::Failed { .. } => Self::Failed,
            State::Cancelled { .. } => Self::Cancelled,
            State::Deleting { .. } => Self::Deleting,
        }
    }
}

label!(/// Whose certificate.
    Certificate {
        /// The provider's.
        Provider = "provider",
        /// The expander's.
        Expander = "expander",
        /// That of the probes' door.
        Probes = "probes",
        /// The console's.
        Console = "console",
    }
);

label!(/// What GPUs are used for that are paid for.
    GpuUse {
        /// GPU pods hold their node.
        Busy = "busy",
        /// Their node has joined, and no GPU pod holds it.
        Idle = "idle",
        /// Their node has joined, and nobody can tell.
        Unknown = "unknown",
        /// Their node has not joined, or is on its way out.
        Away = "away",
    }
);

label!(/// How the price of an offer stands.
    OfferPrice {
        /// Its source is dated, or it is the operator's own word.
        Dated = "dated",
        /// It is used, and nobody knows how old it is.
        Undated = "undated",
        /// It is past its time and not used.
        Lapsed = "lapsed",
        /// There is none.
        Unknown = "unknown",
    }
);
