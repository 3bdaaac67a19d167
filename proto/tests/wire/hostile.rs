//! Bytes that no autoscaler sends: an error or a message, never a panic, and no memory on a claim alone.

use std::panic::catch_unwind;

use prost::Message;
use stoker_proto::expander::BestOptionsRequest;
use stoker_proto::externalgrpc::instance_status::InstanceState;
use stoker_proto::externalgrpc::{
    InstanceStatus, NodeGroupAutoscalingOptionsRequest, NodeGroupForNodeRequest, NodeGroupIncreaseSizeRequest,
    NodeGroupTargetSizeRequest, PricingNodePriceRequest, PricingPodPriceRequest,
};
use stoker_proto::{Bytes, ClientGeneration};

use crate::decoders::{DECODERS, decode, decoder};
use crate::hand::{self, Out, Value};
use crate::releases::{RELEASES, Releases};
use crate::vectors::{Vectors, requests_all, responses};

fn all_vectors() -> Vec<Vectors> {
    let generations = RELEASES.iter().map(Releases::vectors);
    generations.chain([requests_all(), responses()]).collect()
}

#[test]
fn a_cut_message_is_an_error_unless_cut_between_fields() {
    for (message, bytes) in all_vectors().iter().flatten() {
        for len in 0..=bytes.len() {
            let cut = &bytes[..len];
            let whole = hand::fields(cut).is_some();
            assert_eq!(decode(message, cut.to_vec()).is_ok(), whole, "{message} cut at byte {len}");
        }
    }
}

#[test]
fn every_field_refuses_every_other_wire_type() {
    let mut checked = 0;
    for line in include_str!("../vectors/fields.txt").lines() {
        let [message, number, _, kind] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else {
            continue;
        };
        let number: u64 = number.parse().unwrap();
        let right = match kind {
            "int32" | "int64" | "bool" => 0,
            "double" => 1,
            _ => 2,
        };
        for wrong in (0..8).filter(|wire_type| *wire_type != right) {
            // Eight zero bytes are a valid value for each wire type that has one.
            let bytes = Out::new().raw_varint(number << 3 | wrong).done();
            let bytes = [bytes.as_slice(), &[0; 8]].concat();
            assert!(decode(message, bytes).is_err(), "{message}.{number} took wire type {wrong}");
            checked += 1;
        }
    }
    assert!(checked > 300, "{checked} only");
}

#[test]
fn long_ids_are_read_and_false_lengths_are_not() {
    const MEGABYTE: usize = 1 << 20;
    let id = "x".repeat(MEGABYTE);
    let request = NodeGroupTargetSizeRequest::decode(&*Out::new().bytes(1, &id).done()).unwrap();
    assert_eq!(request.id, id, "length is for the caller to judge, after decoding");
    let node = Out::new().bytes(1, Out::new().bytes(1, &id).bytes(2, &id)).done();
    assert_eq!(NodeGroupForNodeRequest::decode(&*node).unwrap().node.unwrap().name.len(), MEGABYTE);

    for claim in [MEGABYTE as u64, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
        for message in ["NodeGroupTargetSizeRequest", "PricingPodPriceRequest", "BestOptionsRequest"] {
            let bytes = Out::new().raw_varint(1 << 3 | 2).raw_varint(claim).done();
            assert!(decode(message, [bytes.as_slice(), b"short"].concat()).is_err(), "{message} claims {claim}");
        }
    }
}

#[test]
fn malformed_pieces() {
    let target = "NodeGroupTargetSizeRequest";
    let increase = "NodeGroupIncreaseSizeRequest";
    assert!(decode(target, Out::new().bytes(1, [0xff, 0xfe]).done()).is_err(), "an id that is not UTF-8");
    assert!(decode(target, Out::new().bytes(0, "x").done()).is_err(), "field number 0");
    assert!(decode(increase, [&[0x08][..], &[0xff; 11]].concat()).is_err(), "a varint without end");
    assert!(decode(target, vec![0xff; 64]).is_err(), "a key without end");
    assert!(decode(target, vec![0x0c]).is_err(), "the end of a group that never began");
    // Field 15 is unknown everywhere; groups in it nest as deep as the bytes go.
    assert!(decode(target, vec![0x7b; 100_000]).is_err(), "groups in groups");

    assert!(decode(target, Out::new().int(15, 7).bytes(1, "x").double(16, 1.0).done()).is_ok(), "fields of tomorrow");
    let wide = NodeGroupIncreaseSizeRequest::decode(&*Out::new().int(1, (7 << 32) + 5).done()).unwrap();
    assert_eq!(wide.delta, 5, "a number wider than its field keeps the low bits, as in every implementation");
    let state = Out::new().int(1, 77).done();
    let status = InstanceStatus::decode(&*state).unwrap();
    assert_eq!((status.instance_state, status.instance_state()), (77, InstanceState::Unspecified));
}

/// Small, fast and the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// Changes, inserts, removes or repeats a few bytes.
fn damage(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = random.byte(),
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => {
                let end = at + random.below(bytes.len() - at);
                bytes.splice(at..at, bytes[at..end].to_vec());
            }
            _ => bytes.insert(at, random.byte()),
        }
    }
    bytes
}

/// Everything our server does to a request before it looks at what it means.
fn use_helpers(bytes: &Bytes) {
    if let Ok(request) = PricingNodePriceRequest::decode(bytes.clone()) {
        let _ = request.interval();
    }
    if let Ok(request) = PricingPodPriceRequest::decode(bytes.clone()) {
        let _ = (request.interval(), request.pod());
    }
    if let Ok(request) = BestOptionsRequest::decode(bytes.clone()) {
        let _ = (request.templates().len(), request.options.iter().map(|option| option.pods().len()).sum::<usize>());
    }
    if let Some(defaults) = NodeGroupAutoscalingOptionsRequest::decode(bytes.clone()).ok().and_then(|request| request.defaults)
    {
        let _ = ClientGeneration::from_defaults(&defaults);
        let both = defaults.both();
        assert_eq!(both.both().encode_to_vec(), both.encode_to_vec(), "filling both twice changes nothing more");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    const ROUNDS: usize = 400;
    let mut random = Random(0x5706_0cea_11fe_1d57);
    let mut understood = 0;
    for (message, good) in all_vectors().iter().flatten() {
        for round in 0..ROUNDS {
            let bytes = Bytes::from(damage(&mut random, good));
            let outcome = catch_unwind(|| {
                use_helpers(&bytes);
                // Meant for this message, and for one that it is not meant for.
                let stray = DECODERS[round % DECODERS.len()].1;
                let mut understood = 0;
                for decoder in [decoder(message), stray] {
                    let Ok(read) = decoder(bytes.clone()) else {
                        continue;
                    };
                    assert_eq!(decoder(Bytes::from(read.clone())).unwrap(), read, "what we write, we read");
                    understood += 1;
                }
                understood
            });
            understood += outcome.unwrap_or_else(|_| panic!("{message}: {:02x?}", bytes.as_ref()));
        }
    }
    assert!(understood > ROUNDS, "the damage leaves some messages readable: {understood}");
}

#[test]
fn the_hand_and_the_crate_agree_on_undamaged_vectors() {
    for (message, bytes) in all_vectors().iter().flatten() {
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            let mut numbers: Vec<_> = hand::fields(bytes).unwrap().into_iter().map(|(number, _)| number).collect();
            numbers.dedup();
            numbers
        };
        let again = decode(message, bytes.clone()).unwrap();
        assert_eq!(numbers(&again), numbers(bytes), "{message}");
        let doubles = |bytes: &[u8]| -> Vec<f64> {
            let fields = hand::fields(bytes).unwrap().into_iter();
            fields.filter_map(|(_, value)| if let Value::Double(value) = value { Some(value) } else { None }).collect()
        };
        assert_eq!(doubles(&again), doubles(bytes), "{message}");
    }
}
