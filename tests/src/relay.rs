//! Connections that break or hang.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Stands between two peers; its connections can be cut or left hanging, and it can lead elsewhere or nowhere.
pub struct Relay {
    /// Where it listens.
    pub addr: SocketAddr,
    to: watch::Sender<Option<SocketAddr>>,
    cut: watch::Sender<u32>,
    hangs: watch::Sender<bool>,
    opened: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Relay {
    /// One that leads nowhere.
    ///
    /// # Errors
    /// When there is no port for it.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let (to, leads) = watch::channel(None::<SocketAddr>);
        let (cut, cuts) = watch::channel(0);
        let (hangs, hanging) = watch::channel(false);
        let opened = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&opened);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let Ok((mut near, _)) = listener.accept().await else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                let (to, mut cuts, hanging) = (*leads.borrow(), cuts.clone(), hanging.clone());
                cuts.mark_unchanged();
                open.spawn(async move {
                    let Some(to) = to else { return };
                    let Ok(mut far) = TcpStream::connect(to).await else { return };
                    let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
                    tokio::select! {
                        _ = async { tokio::join!(copy(near_in, far_out, hanging.clone()), copy(far_in, near_out, hanging)) } => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Ok(Self { addr, to, cut, hangs, opened, _serving: serving })
    }

    /// Leads new connections there from now on, or nowhere.
    pub fn lead(&self, to: Option<SocketAddr>) {
        self.to.send_replace(to);
    }

    /// Cuts those that there are.
    pub fn cut(&self) {
        self.cut.send_modify(|cut| *cut += 1);
    }

    /// Lets no byte through any more, or goes on. Connections stay, and new ones are taken.
    pub fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// How many connections were opened so far.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Copies until an end, or while it hangs not at all.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut hanging: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(read) = from.read(&mut bytes).await {
        // Where the relay is gone, so is this.
        let _ = hanging.wait_for(|hangs| !hangs).await;
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    // The other side hears of the end where it still listens.
    let _ = to.shutdown().await;
}
