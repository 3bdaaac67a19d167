//! What goes wrong around the service.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use stoker_tests::proxy::{Fault, Proxy};

use super::service::Service;

/// The volume of the state directory, in MiB.
const SIZE: u32 = 64;

/// One thing that goes wrong for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The disk is full.
    Disk,
    /// The clock is two hours ahead.
    Ahead,
    /// The API server takes connections and answers nothing.
    ApiServer,
    /// The clock is two hours behind.
    Behind,
    /// The supplier answers nothing.
    Supplier,
}

impl Trouble {
    pub(crate) const ALL: [Self; 5] = [Self::Disk, Self::Ahead, Self::ApiServer, Self::Behind, Self::Supplier];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk full",
            Self::Ahead => "clock ahead",
            Self::ApiServer => "API server hung",
            Self::Behind => "clock behind",
            Self::Supplier => "supplier hung",
        }
    }

    /// Whether a restart falls into it. Without an API server or a supplier the service does not get ready, and says so.
    pub(crate) const fn outlives_the_service(self) -> bool {
        matches!(self, Self::Disk | Self::Ahead | Self::Behind)
    }

    pub(crate) async fn begin(self, volume: &Volume, api: &Proxy, service: &mut Service) -> Result<()> {
        match self {
            Self::Disk => volume.fill(),
            Self::ApiServer => {
                api.fault.send_replace(Fault::Hangs);
                Ok(())
            }
            Self::Supplier => service.order("supplier hangs").await,
            Self::Ahead | Self::Behind => self.carry_over(service).await,
        }
    }

    /// Tells a restarted service what its machine would have told it.
    pub(crate) async fn carry_over(self, service: &mut Service) -> Result<()> {
        match self {
            Self::Ahead => service.order("wall 7200").await,
            Self::Behind => service.order("wall -7200").await,
            Self::Disk | Self::ApiServer | Self::Supplier => Ok(()),
        }
    }

    pub(crate) async fn end(self, volume: &Volume, api: &Proxy, service: &mut Service) -> Result<()> {
        match self {
            Self::Disk => volume.free(),
            Self::ApiServer => {
                api.fault.send_replace(Fault::None);
                Ok(())
            }
            Self::Supplier => service.order("supplier answers").await,
            Self::Ahead | Self::Behind => service.order("wall 0").await,
        }
    }
}

/// A small file system of its own, which goes with the mount namespace of this process.
pub(crate) struct Volume {
    filler: PathBuf,
}

impl Volume {
    pub(crate) fn mount(at: &Path) -> Result<Self> {
        std::fs::create_dir(at)?;
        let size = format!("size={SIZE}m,mode=0700");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "stoker-chaos"]).arg(at).status().context("mount")?;
        ensure!(status.success(), "no file system could be mounted: run it where a user may make a mount namespace");
        Ok(Self { filler: at.join("filler") })
    }

    /// Fills it to the last byte.
    fn fill(&self) -> Result<()> {
        let mut file = File::create(&self.filler)?;
        let bytes = vec![1; 64 << 10];
        loop {
            match file.write(&bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("filling the disk"),
            }
        }
    }

    fn free(&self) -> Result<()> {
        std::fs::remove_file(&self.filler).context("freeing the disk")
    }
}
