//! Every message of the services by its name in the `.proto` files.

use prost::{DecodeError, Message};
use stoker_proto::Bytes;

/// Decodes, and encodes again what was understood.
pub(crate) type Decoder = fn(Bytes) -> Result<Vec<u8>, DecodeError>;

fn again<M: Message + Default>(bytes: Bytes) -> Result<Vec<u8>, DecodeError> {
    Ok(M::decode(bytes)?.encode_to_vec())
}

macro_rules! decoders {
    ($($package:ident: $($message:ident)*;)*) => {
        [$($((stringify!($message), again::<stoker_proto::$package::$message> as Decoder)),*),*]
    };
}

pub(crate) const DECODERS: &[(&str, Decoder)] = &decoders! {
    externalgrpc:
        CleanupRequest CleanupResponse ExternalGrpcNode GetAvailableGpuTypesRequest GetAvailableGpuTypesResponse
        GpuLabelRequest GpuLabelResponse Instance InstanceErrorInfo InstanceStatus LegacyDuration NodeGroup
        NodeGroupAutoscalingOptions NodeGroupAutoscalingOptionsRequest NodeGroupAutoscalingOptionsResponse
        NodeGroupDecreaseTargetSizeRequest NodeGroupDecreaseTargetSizeResponse NodeGroupDeleteNodesRequest
        NodeGroupDeleteNodesResponse NodeGroupForNodeRequest NodeGroupForNodeResponse NodeGroupIncreaseSizeRequest
        NodeGroupIncreaseSizeResponse NodeGroupNodesRequest NodeGroupNodesResponse NodeGroupTargetSizeRequest
        NodeGroupTargetSizeResponse NodeGroupTemplateNodeInfoRequest NodeGroupTemplateNodeInfoResponse
        NodeGroupsRequest NodeGroupsResponse PricingNodePriceRequest PricingNodePriceResponse PricingPodPriceRequest
        PricingPodPriceResponse RefreshRequest RefreshResponse;
    expander: BestOptionsRequest BestOptionsResponse ExpanderOption;
    probe:
        Ack Clocks ConfirmQuiet Driver Ecc Event Fabric FromProbe Gate Gpu Hello QuietAnswer Interruption Memory Mig MigDevice NvLink
        Pcie Process Processes RemappedRows Round ToProbe Unknown Xid;
};

/// The decoder of a message. The generated names write `Gpu` where the files write `GPU`.
pub(crate) fn decoder(message: &str) -> Decoder {
    let message = if message == "Option" { "ExpanderOption" } else { message };
    let found = DECODERS.iter().find(|(name, _)| name.eq_ignore_ascii_case(message));
    found.unwrap_or_else(|| panic!("no decoder for {message}")).1
}

pub(crate) fn decode(message: &str, bytes: impl Into<Bytes>) -> Result<Vec<u8>, DecodeError> {
    decoder(message)(bytes.into())
}
