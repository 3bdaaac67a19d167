//! Servers that misbehave: what stands before one spoils its answers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What a peer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What it should.
    None,
    /// It answers nothing.
    Hangs,
    /// It says a byte a second.
    IsSlow,
    /// It says what makes no sense.
    TalksGarbage,
    /// It goes in the middle of what it says, now and then.
    Closes,
}

impl Fault {
    /// What hangs comes last: a call that hangs is given up late.
    pub const ALL: [Self; 4] = [Self::IsSlow, Self::TalksGarbage, Self::Closes, Self::Hangs];
}

/// Between two bytes of one that is slow.
pub const SECOND: Duration = Duration::from_secs(1);

/// Bytes that no protocol has, the same in each run.
pub fn garbage(length: usize) -> Vec<u8> {
    static SEED: AtomicU32 = AtomicU32::new(0x9e37_79b9);
    let mut word = SEED.fetch_add(0x6d2b_79f5, Ordering::Relaxed) | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 17;
        word ^= word << 5;
        word.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// Stands before a server, whose answers it spoils.
pub struct Proxy {
    /// Where it listens.
    pub addr: SocketAddr,
    /// What it does from now on.
    pub fault: watch::Sender<Fault>,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// Starts one on a port that the system chooses.
    ///
    /// # Errors
    /// Where it cannot listen.
    pub async fn before(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (addr, fault) = (listener.local_addr()?, watch::Sender::new(Fault::None));
        let (follow, mut serving) = (fault.subscribe(), JoinSet::new());
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let fault = follow.clone();
                open.spawn(async move {
                    if let Ok(far) = TcpStream::connect(server).await {
                        carry(near, far, fault).await;
                    }
                });
            }
        });
        Ok(Self { addr, fault, _serving: serving })
    }
}

/// Carries what both say until one of them ends; the answers as the fault says.
async fn carry(near: TcpStream, far: TcpStream, mut fault: watch::Receiver<Fault>) {
    let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (near.into_split(), far.into_split());
    let answers = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = far_read.read(&mut buffer).await?;
            let Some(answer) = buffer.get(..read).filter(|answer| !answer.is_empty()) else { return Ok(()) };
            let now = *fault.borrow_and_update();
            match now {
                Fault::None => near_write.write_all(answer).await?,
                Fault::Hangs => {
                    let _ = fault.changed().await;
                    near_write.write_all(answer).await?;
                }
                Fault::IsSlow => {
                    let (mut rest, mut changes) = (answer, fault.clone());
                    while let Some((byte, after)) = rest.split_first() {
                        near_write.write_all(&[*byte]).await?;
                        rest = after;
                        tokio::select! { () = sleep(SECOND) => {}, _ = changes.changed() => break }
                    }
                    near_write.write_all(rest).await?;
                }
                Fault::TalksGarbage => near_write.write_all(&garbage(read)).await?,
                Fault::Closes => {
                    near_write.write_all(answer.get(..read / 2).unwrap_or_default()).await?;
                    return Ok::<_, std::io::Error>(());
                }
            }
        }
    };
    tokio::select! {
        _ = answers => {}
        _ = tokio::io::copy(&mut near_read, &mut far_write) => {}
    }
}
