//! The expander's requests: only options that were asked come back, at least one unless nodes on
//! their way serve all, and the same again for the same request.

use prost::Message as _;
use stoker_proto::expander::{BestOptionsRequest, BestOptionsResponse};
use stoker_service::api::grpc::Bounded;
use stoker_service::api::grpc::expander::Expander;

use super::{rpc, service};

pub(super) fn run(data: &[u8]) {
    let running = service::running();
    let server = Bounded::new(Expander::new(running.service.running().handle.clone()), 64 << 20);
    let answers = running.runtime.block_on(async {
        let mut answers = Vec::new();
        for _ in 0..2 {
            let answer = rpc::call(server.clone(), "/grpcplugin.Expander/BestOptions", &[data]).await;
            assert!(answer.only::<BestOptionsResponse>().is_some() || !answer.status.message().is_empty());
            answers.push(answer.only::<BestOptionsResponse>());
        }
        answers
    });
    assert_eq!(answers[0], answers[1], "the same request, and another answer");
    let Some(answer) = &answers[0] else { return };
    let request = BestOptionsRequest::decode(data).expect("what was answered can be read");
    let asked: Vec<&str> = request.options.iter().map(|option| option.node_group_id.as_str()).collect();
    let kept: Vec<&str> = answer.options.iter().map(|option| option.node_group_id.as_str()).collect();
    assert!(kept.iter().all(|group| asked.contains(group)), "{kept:?} of {asked:?}");
    assert!(kept.len() <= asked.len(), "{kept:?} of {asked:?}");
    let has_pods = request.options.iter().any(|option| !option.pods().is_empty());
    assert!(!kept.is_empty() || asked.is_empty() || has_pods, "nothing is kept of options without pods");
}
