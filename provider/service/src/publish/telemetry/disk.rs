//! The disk that the state directory is on, asked when somebody scrapes.

use std::fmt;
use std::path::PathBuf;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::published::gauges;

/// Tells the size and the free space of the disk of a directory.
#[derive(Debug)]
pub struct StateDisk(pub PathBuf);

impl Collector for StateDisk {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // Of a directory that is gone nothing is known.
        let Ok(disk) = rustix::fs::statvfs(&self.0) else { return Ok(()) };
        let bytes =
            |blocks: u64| std::iter::once(([], i64::try_from(blocks.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX)));
        let size = bytes(disk.f_blocks);
        gauges(&mut encoder, "state_disk_size", "Size of the disk of the state directory", Some(&Unit::Bytes), size)?;
        let help = "Free space on the disk of the state directory";
        gauges(&mut encoder, "state_disk_free", help, Some(&Unit::Bytes), bytes(disk.f_bavail))
    }
}
