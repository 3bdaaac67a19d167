//! The served descriptor: method paths, and every field's number, name and type.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use stoker_proto::{FILE_DESCRIPTOR_SET, expander, externalgrpc, probe};

use crate::decoders::{DECODERS, decoder};

/// The package of plugins: it is asked, and not served.
const PLUGINS: &str = "stoker.supplier.v1";

/// What is served, and what that imports.
fn files() -> Vec<FileDescriptorProto> {
    let mut files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
    files.retain(|file| file.package() != PLUGINS);
    files
}

/// `/package.Service/Method Request Response` for each method of our services.
fn methods() -> Vec<String> {
    let mut methods = Vec::new();
    for file in files() {
        for service in &file.service {
            for method in &service.method {
                let streams = file.package() == "stoker.probe.v1";
                assert_eq!((method.client_streaming(), method.server_streaming()), (streams, streams), "{}", method.name());
                let short = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
                methods.push(format!(
                    "/{}.{}/{} {} {}",
                    file.package(),
                    service.name(),
                    method.name(),
                    short(method.input_type()),
                    short(method.output_type()),
                ));
            }
        }
    }
    methods.sort();
    methods
}

#[test]
fn method_paths() {
    let cloud = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider";
    let mut expected = [
        "NodeGroups NodeGroupsRequest NodeGroupsResponse",
        "NodeGroupForNode NodeGroupForNodeRequest NodeGroupForNodeResponse",
        "PricingNodePrice PricingNodePriceRequest PricingNodePriceResponse",
        "PricingPodPrice PricingPodPriceRequest PricingPodPriceResponse",
        "GPULabel GPULabelRequest GPULabelResponse",
        "GetAvailableGPUTypes GetAvailableGPUTypesRequest GetAvailableGPUTypesResponse",
        "Cleanup CleanupRequest CleanupResponse",
        "Refresh RefreshRequest RefreshResponse",
        "NodeGroupTargetSize NodeGroupTargetSizeRequest NodeGroupTargetSizeResponse",
        "NodeGroupIncreaseSize NodeGroupIncreaseSizeRequest NodeGroupIncreaseSizeResponse",
        "NodeGroupDeleteNodes NodeGroupDeleteNodesRequest NodeGroupDeleteNodesResponse",
        "NodeGroupDecreaseTargetSize NodeGroupDecreaseTargetSizeRequest NodeGroupDecreaseTargetSizeResponse",
        "NodeGroupNodes NodeGroupNodesRequest NodeGroupNodesResponse",
        "NodeGroupTemplateNodeInfo NodeGroupTemplateNodeInfoRequest NodeGroupTemplateNodeInfoResponse",
        "NodeGroupGetOptions NodeGroupAutoscalingOptionsRequest NodeGroupAutoscalingOptionsResponse",
    ]
    .map(|method| format!("{cloud}/{method}"))
    .to_vec();
    expected.push("/grpcplugin.Expander/BestOptions BestOptionsRequest BestOptionsResponse".to_owned());
    expected.push("/stoker.probe.v1.Probe/Watch FromProbe ToProbe".to_owned());
    expected.sort();
    assert_eq!(methods(), expected);

    let served = [
        externalgrpc::cloud_provider_server::SERVICE_NAME,
        expander::expander_server::SERVICE_NAME,
        probe::probe_server::SERVICE_NAME,
    ];
    let names =
        ["clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider", "grpcplugin.Expander", "stoker.probe.v1.Probe"];
    assert_eq!(served, names);
}

fn field_line(message: &str, field: &FieldDescriptorProto, maps: &[DescriptorProto]) -> String {
    let map = maps.iter().find(|map| field.type_name().ends_with(&format!(".{message}.{}", map.name())));
    let kind = match map {
        Some(map) => format!("map<{}, {}>", kind(&map.field[0]), kind(&map.field[1])),
        None if field.label() == Label::Repeated => format!("repeated {}", kind(field)),
        None => kind(field),
    };
    format!("{message} {} {} {kind}", field.number(), field.name())
}

fn kind(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum => {
            let name = field.type_name().trim_start_matches('.');
            name.trim_start_matches("clusterautoscaler.cloudprovider.v1.externalgrpc.")
                .trim_start_matches("grpcplugin.")
                .trim_start_matches("stoker.probe.v1.")
                .trim_start_matches("stoker.supplier.v1.")
                .to_owned()
        }
        other => other.as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    }
}

/// One line per field and enum value of these files, in order of declaration.
fn fields(files: &[FileDescriptorProto]) -> String {
    let mut lines = Vec::new();
    for file in files.iter().filter(|file| !file.package().starts_with("google.")) {
        for message in &file.message_type {
            lines.extend(message.field.iter().map(|field| field_line(message.name(), field, &message.nested_type)));
            for states in &message.enum_type {
                let line = |n, name| format!("{}.{} {n} {name}", message.name(), states.name());
                lines.extend(states.value.iter().map(|value| line(value.number(), value.name())));
            }
        }
        for states in &file.enum_type {
            lines.extend(states.value.iter().map(|value| format!("{} {} {}", states.name(), value.number(), value.name())));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn field_numbers_names_and_types() {
    assert_eq!(fields(&files()), include_str!("../vectors/fields.txt"), "a number or type on the wire changed");
    let mut plugins = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
    plugins.retain(|file| file.package() == PLUGINS);
    assert_eq!(fields(&plugins), include_str!("../vectors/supplier.txt"), "a number or type of the plugin protocol changed");
}

#[test]
fn every_message_has_a_decoder_to_be_attacked_with() {
    let files = files();
    let ours = files.iter().filter(|file| !file.package().starts_with("google."));
    let messages: Vec<_> = ours.flat_map(|file| &file.message_type).map(|message| decoder(message.name())).collect();
    assert_eq!(messages.len(), DECODERS.len());
}

#[test]
fn imports_and_comments_are_served_too() {
    let files = files();
    for file in &files {
        for import in &file.dependency {
            assert!(files.iter().any(|other| other.name() == import), "{import} is missing");
        }
    }
    let ours: Vec<_> = files.iter().filter(|file| !file.package().starts_with("google.")).collect();
    assert_eq!(ours.len(), 3);
    for file in ours {
        let locations = &file.source_code_info.as_ref().unwrap().location;
        let spoken = |path: &[i32]| locations.iter().any(|at| at.path == path && !at.leading_comments().trim().is_empty());
        for (m, message) in (0..).zip(&file.message_type) {
            assert!(spoken(&[4, m]), "{} has no comment", message.name());
            for (f, field) in (0..).zip(&message.field) {
                assert!(spoken(&[4, m, 2, f]), "{}.{} has no comment", message.name(), field.name());
            }
        }
        for (s, service) in (0..).zip(&file.service) {
            for (m, method) in (0..).zip(&service.method) {
                assert!(spoken(&[6, s, 2, m]), "{} has no comment", method.name());
            }
        }
    }
}
