use k8s_pb::api::core::v1::Node;
use stoker_core::base::ids::NodeGroupId;
use stoker_core::catalogue::template::GPU_LABEL;
use stoker_proto::externalgrpc::cloud_provider_server::CloudProvider as _;
use stoker_proto::externalgrpc::instance_status::InstanceState::{InstanceCreating, InstanceDeleting, InstanceRunning};
use stoker_proto::externalgrpc::*;
use stoker_proto::{Any, Bytes};
use tonic::{Code, Request};

use super::super::provider::Provider;
use super::*;
use crate::publish::view::InstanceStatus;

/// Calls that must be answered, with the answer alone.
impl Provider {
    async fn ids(&self) -> Vec<String> {
        self.groups().await.into_iter().map(|group| group.id).collect()
    }

    async fn groups(&self) -> Vec<NodeGroup> {
        self.node_groups(Request::new(NodeGroupsRequest {})).await.unwrap().into_inner().node_groups
    }

    async fn refreshed(&self) {
        self.refresh(Request::new(RefreshRequest {})).await.unwrap();
    }

    /// Empty for a node that is not ours.
    async fn owner_of(&self, node: Option<ExternalGrpcNode>) -> NodeGroup {
        let reply = self.node_group_for_node(Request::new(NodeGroupForNodeRequest { node })).await.unwrap();
        reply.into_inner().node_group.unwrap_or_default()
    }

    async fn target(&self, id: &str) -> i32 {
        let request = NodeGroupTargetSizeRequest { id: id.to_owned() };
        self.node_group_target_size(Request::new(request)).await.unwrap().into_inner().target_size
    }

    async fn instances(&self, id: &str) -> Vec<Instance> {
        let request = NodeGroupNodesRequest { id: id.to_owned() };
        self.node_group_nodes(Request::new(request)).await.unwrap().into_inner().instances
    }

    async fn template_of(&self, id: &str) -> NodeGroupTemplateNodeInfoResponse {
        let request = NodeGroupTemplateNodeInfoRequest { id: id.to_owned() };
        self.node_group_template_node_info(Request::new(request)).await.unwrap().into_inner()
    }
}

fn running(id: &str) -> InstanceView {
    InstanceView { id: id.to_owned(), state: InstanceStatus::Running }
}

#[tokio::test]
async fn half_a_view_fails_refresh_and_what_was_shown_stays() {
    let handle: Handle<_> = handle!(View::starting(now(), Arc::new(catalogue())));
    let provider = Provider::new(handle.engine.clone());
    let refused = provider.refresh(Request::new(RefreshRequest {})).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().starts_with("Refresh: starting"), "{refused:?}");
    // No list has been shown: an empty one would say that there are no groups.
    let refused = provider.node_groups(Request::new(NodeGroupsRequest {})).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let request = NodeGroupTargetSizeRequest { id: ONE_A.to_owned() };
    assert_eq!(provider.node_group_target_size(Request::new(request)).await.unwrap_err().code(), Code::Unavailable);

    handle.show(view());
    let refused = provider.node_groups(Request::new(NodeGroupsRequest {})).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("call Refresh first"), "{refused:?}");
    provider.refreshed().await;
    assert_eq!(provider.ids().await, [ONE_A, ONE_B, TWO_A]);

    handle.show_not_ready();
    let refused = provider.refresh(Request::new(RefreshRequest {})).await.unwrap_err();
    assert!(refused.message().contains("Kubernetes"), "{refused:?}");
    assert_eq!(provider.ids().await, [ONE_A, ONE_B, TWO_A]);
    assert_eq!(provider.target(ONE_A).await, 0);
}

#[tokio::test]
async fn an_empty_list_that_was_refreshed_is_an_answer() {
    let mut bare = view();
    bare.groups.clear();
    let handle: Handle<_> = handle!(bare);
    let provider = Provider::new(handle.engine.clone());
    provider.refreshed().await;
    assert_eq!(provider.ids().await, [""; 0]);
}

#[tokio::test]
async fn limits_are_live_and_the_set_changes_only_at_refresh() {
    let mut first = view();
    first.groups.remove(&NodeGroupId::new(TWO_A).unwrap());
    edit(&mut first, ONE_B, |group| group.limits.listed = false);
    fill(&mut first, ONE_A, vec![running("aws:///a-1")]);
    let handle: Handle<_> = handle!(first);
    let provider = Provider::new(handle.engine.clone());
    provider.refreshed().await;
    let groups = provider.groups().await;
    assert_eq!(groups.len(), 1);
    assert_eq!((groups[0].id.as_str(), groups[0].min_size, groups[0].max_size), (ONE_A, 0, 10));
    assert_eq!(groups[0].debug, "next node $0.8000/h");

    // One group goes, two come: seen only after the next Refresh, by list and by node alike.
    let template = provider.template_of(ONE_A).await;
    let mut second = view();
    second.groups.remove(&NodeGroupId::new(ONE_A).unwrap());
    fill(&mut second, TWO_A, vec![running("aws:///c-1")]);
    handle.show(second);
    assert_eq!(provider.ids().await, [ONE_A]);
    let gone = &provider.groups().await[0];
    assert_eq!((gone.min_size, gone.max_size), (0, 0));
    assert_eq!((provider.target(ONE_A).await, provider.instances(ONE_A).await), (0, vec![]));
    assert_eq!(provider.template_of(ONE_A).await, template);
    assert_eq!(provider.owner_of(Some(node("aws:///c-1", "c"))).await, NodeGroup::default());
    // Its own figures can be asked for already.
    assert_eq!(provider.target(TWO_A).await, 1);

    provider.refreshed().await;
    assert_eq!(provider.ids().await, [ONE_B, TWO_A]);
    assert_eq!(provider.owner_of(Some(node("aws:///c-1", "c"))).await.id, TWO_A);
    // A deletion may still be under way for the group that went.
    assert_eq!(provider.target(ONE_A).await, 0);

    let mut third = view();
    close(&mut third, TWO_A);
    edit(&mut third, TWO_A, |group| group.limits.min = 3);
    handle.show(third);
    let shut = &provider.groups().await[1];
    assert_eq!((shut.id.as_str(), shut.min_size, shut.max_size), (TWO_A, 3, 0));
    assert!(shut.debug.starts_with("closed: "), "{}", shut.debug);
}

#[tokio::test]
async fn a_group_without_a_template_is_not_shown() {
    let mut shown = view();
    fill(&mut shown, ONE_A, vec![running("aws:///a-1")]);
    edit(&mut shown, ONE_A, |group| group.template = Bytes::new());
    let handle: Handle<_> = handle!(shown);
    let provider = Provider::new(handle.engine.clone());
    provider.refreshed().await;
    assert_eq!(provider.ids().await, [ONE_B, TWO_A]);
    assert_eq!(provider.owner_of(Some(node("aws:///a-1", "a"))).await, NodeGroup::default());
    let request = NodeGroupTemplateNodeInfoRequest { id: ONE_A.to_owned() };
    assert_eq!(provider.node_group_template_node_info(Request::new(request)).await.unwrap_err().code(), Code::Internal);
}

#[tokio::test]
async fn a_node_is_ours_by_provider_id_placeholder_or_name_and_never_an_error() {
    let mut shown = view();
    fill(
        &mut shown,
        ONE_A,
        vec![running("aws:///zone-a/i-1"), InstanceView { id: "stoker://test/g/2".into(), state: InstanceStatus::Creating }],
    );
    shown.owners.insert("node-1".to_owned(), group_id(ONE_A));
    let handle: Handle<_> = handle!(shown);
    let provider = Provider::new(handle.engine.clone());
    let ours = [
        node("aws:///zone-a/i-1", "node-1"),
        node("aws:///zone-a/i-1", ""),
        node("", "node-1"),
        node("stoker://test/g/2", "stoker://test/g/2"),
    ];
    // Before the first Refresh nothing is listed, so nothing is ours.
    assert_eq!(provider.owner_of(Some(ours[0].clone())).await, NodeGroup::default());
    provider.refreshed().await;
    for node in ours {
        let owner = provider.owner_of(Some(node.clone())).await;
        assert_eq!((owner.id.as_str(), owner.max_size), (ONE_A, 10), "{node:?}");
    }
    let huge = "x".repeat(1 << 20);
    for node in [
        None,
        Some(ExternalGrpcNode::default()),
        Some(node("aws:///zone-a/i-2", "control-plane")),
        Some(node("AWS:///zone-a/i-1", "other")),
        Some(node("", "template-node-for-pool.gpu-1.zone-a-1")),
        Some(node("kwok://x", "virtual")),
        Some(node("\u{0}", "\n")),
        Some(node(&huge, &huge)),
    ] {
        assert_eq!(provider.owner_of(node).await, NodeGroup::default());
    }
    // A megabyte of provider id does not hide the name.
    assert_eq!(provider.owner_of(Some(node(&huge, "node-1"))).await.id, ONE_A);
}

#[tokio::test]
async fn instances_have_the_states_that_the_autoscaler_acts_on() {
    let failed = |out_of_resources, message: &str| InstanceStatus::Failed {
        code: "OUT_OF_CAPACITY",
        message: message.to_owned(),
        out_of_resources,
    };
    let every = [
        InstanceStatus::Creating,
        InstanceStatus::Running,
        InstanceStatus::Deleting,
        failed(true, "none left"),
        failed(false, &"é".repeat(1000)),
    ];
    let mut shown = view();
    fill(
        &mut shown,
        ONE_A,
        every.into_iter().zip(1..).map(|(state, n)| InstanceView { id: format!("i-{n}"), state }).collect(),
    );
    let handle: Handle<_> = handle!(shown);
    let instances = Provider::new(handle.engine.clone()).instances(ONE_A).await;
    let seen: Vec<_> = instances
        .iter()
        .map(|instance| {
            let status = instance.status.as_ref().unwrap();
            let error = status.error_info.as_ref().map(|e| (e.error_code.as_str(), e.instance_error_class));
            (instance.id.as_str(), status.instance_state(), error)
        })
        .collect();
    let expected = [
        ("i-1", InstanceCreating, None),
        ("i-2", InstanceRunning, None),
        ("i-3", InstanceDeleting, None),
        ("i-4", InstanceCreating, Some(("OUT_OF_CAPACITY", 1))),
        ("i-5", InstanceCreating, Some(("OUT_OF_CAPACITY", 99))),
    ];
    assert_eq!(seen, expected);
    let message = |n: usize| instances[n].status.as_ref().unwrap().error_info.as_ref().unwrap().error_message.clone();
    assert_eq!(message(3), "none left");
    assert!(message(4).len() <= 240 && message(4).ends_with('…'), "{}", message(4));
}

#[tokio::test]
async fn a_template_is_in_both_fields_and_is_the_group_s_node() {
    let handle: Handle<_> = handle!(view());
    let provider = Provider::new(handle.engine.clone());
    let template = provider.template_of(TWO_A).await;
    assert!(!template.node_bytes.is_empty());
    assert_eq!(template.node_bytes, template.node_info);
    let node = <Node as prost::Message>::decode(template.node_bytes).unwrap();
    assert_eq!(node.metadata.unwrap().labels[GPU_LABEL], "L4");
    let request = NodeGroupTemplateNodeInfoRequest { id: "gone".to_owned() };
    assert_eq!(provider.node_group_template_node_info(Request::new(request)).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn what_is_the_same_for_all_is_answered_always() {
    let mut handle: Handle<_> = handle!(View::starting(now(), Arc::new(catalogue())));
    let provider = Provider::new(handle.engine.clone());
    let defaults =
        NodeGroupAutoscalingOptions { scale_down_utilization_threshold: 0.5, ..NodeGroupAutoscalingOptions::default() };
    for (id, defaults) in [(ONE_A, Some(defaults)), ("gone", None), ("", None)] {
        let request = NodeGroupAutoscalingOptionsRequest { id: id.to_owned(), defaults };
        let reply = provider.node_group_get_options(Request::new(request)).await.unwrap().into_inner();
        assert_eq!(prost::Message::encoded_len(&reply), 0, "as the flags say");
    }
    let label = provider.gpu_label(Request::new(GpuLabelRequest {})).await.unwrap().into_inner().label;
    assert_eq!(label, "stoker.dev/gpu");
    let types = provider.get_available_gpu_types(Request::new(GetAvailableGpuTypesRequest {})).await.unwrap().into_inner();
    assert_eq!(types.gpu_types, [("L4".to_owned(), Any::default())].into());
    provider.cleanup(Request::new(CleanupRequest {})).await.unwrap();
    assert!(handle.untouched());
}
