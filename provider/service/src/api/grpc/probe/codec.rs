//! The parts of a probe's message: an empty GPU takes two bytes of a message and a kilobyte once decoded.

use stoker_proto::codec::fields;
use stoker_proto::probe::FromProbe;
use tonic::Status;

use crate::api::grpc::counting::Counted;

/// Largest message: a round of 16 GPUs in seven instances each takes some 30 KiB.
pub(super) const LARGEST: usize = 256 << 10;

/// Most parts of a message that become things of their own. The same round with ten processes in each instance has 1,300.
const MOST_PARTS: usize = 4096;

/// A message: the fields of it that are messages.
struct Shape(&'static [(u64, Shape)]);

const LEAF: Shape = Shape(&[]);
const PROCESSES: Shape = Shape(&[(1, LEAF)]);
const MIG_DEVICE: Shape = Shape(&[(5, LEAF), (8, PROCESSES), (60, LEAF)]);
const GPU: Shape = Shape(&[(25, PROCESSES), (27, Shape(&[(3, MIG_DEVICE)])), (60, LEAF)]);
const ROUND: Shape = Shape(&[(5, GPU), (6, LEAF)]);
const FROM_PROBE: Shape = Shape(&[(1, LEAF), (2, ROUND), (3, Shape(&[(2, ROUND)])), (4, LEAF)]);

impl Counted for FromProbe {
    fn check(message: &[u8]) -> Result<(), Status> {
        let mut parts = 0;
        count(message, &FROM_PROBE, &mut parts).ok_or_else(|| Self::bad("the message is not valid protobuf"))?;
        if parts > MOST_PARTS {
            let message =
                format!("the message has {parts} parts, more than {MOST_PARTS}: no node has so many GPUs and processes");
            return Err(Status::resource_exhausted(message));
        }
        Ok(())
    }

    fn bad(why: &str) -> Status {
        Status::invalid_argument(why)
    }
}

/// Adds up the parts of a message; `None` for what is no protobuf.
fn count(message: &[u8], shape: &Shape, parts: &mut usize) -> Option<()> {
    for field in fields(message) {
        let (number, Some(inner)) = field? else { continue };
        if let Some((_, shape)) = shape.0.iter().find(|(of, _)| *of == number) {
            *parts += 1;
            count(inner, shape, parts)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use stoker_proto::probe::{Gpu, Mig, MigDevice, Process, Processes, Round, from_probe};

    use super::*;

    fn parts(message: &FromProbe) -> usize {
        let mut parts = 0;
        count(&message.encode_to_vec(), &FROM_PROBE, &mut parts).unwrap();
        parts
    }

    fn round(round: Round) -> FromProbe {
        FromProbe { kind: Some(from_probe::Kind::Round(round)) }
    }

    #[test]
    fn every_part_that_is_allocated_is_counted() {
        assert_eq!(parts(&FromProbe::default()), 0);
        let processes = |n| Some(Processes { compute: vec![Process::default(); n] });
        let device = MigDevice { processes: processes(3), ..MigDevice::default() };
        let mig = Some(Mig { devices: vec![device; 2], ..Mig::default() });
        let gpu = Gpu { mig, processes: processes(5), ..Gpu::default() };
        // The round, two GPUs, each with its list and 5 processes, its split and 2 instances, and in each of these a list and 3 processes.
        assert_eq!(parts(&round(Round { gpus: vec![gpu; 2], ..Round::default() })), 1 + 2 * (1 + 1 + 5 + 1 + 2 * (1 + 1 + 3)));
    }

    #[test]
    fn a_million_gpus_are_told_before_they_are_made() {
        // 100,000 empty GPUs, two bytes each: a message below the largest, and 100 MB once decoded.
        let message = round(Round { gpus: vec![Gpu::default(); 100_000], ..Round::default() });
        assert!(message.encoded_len() < LARGEST);
        assert!(parts(&message) > MOST_PARTS);
    }
}
