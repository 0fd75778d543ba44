//! Where client connections come in: sockets, TLS, the telling of HTTP/1 and HTTP/2, and the app that serves each connection. It counts connections, ends
//! those that stay silent, and hands each request's stream to Pingora's proxy, whose own clean-up it holds back until
//! nothing is in flight. What is asked for is not looked at here.

mod app;
mod corked;
mod cut;
mod http2;
mod listening;
mod patience;
mod sockets;
mod tls;

pub use app::Edge;
pub use listening::Listening;
pub use sockets::{Bound, Sockets, bind};
pub use tls::settings;
