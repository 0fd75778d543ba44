use super::{Client, DEADLINE, eventually};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::task::JoinHandle;

/// Clients that ask for `/`, each on one kept connection and again when it was answered, until [`Load::end`]. Any answer but
/// 200 ends its client, and the test.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn on(address: SocketAddr, clients: usize) -> Load {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client = |_| {
            let (stop, answered) = (stop.clone(), answered.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(address).await;
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(client.get("/", "").await.expect("an answer").status, 200);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Load { stop, answered, clients }
    }

    /// Returns when so many more were answered.
    pub async fn more(&self, count: usize) {
        let before = self.answered.load(Ordering::SeqCst);
        eventually(DEADLINE, "answers", async || self.answered.load(Ordering::SeqCst) >= before + count).await;
    }

    pub async fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.expect("every answer was good");
        }
    }
}
