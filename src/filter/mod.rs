//! What changes a request on its way, and what is believed of whence it came; one filter a file.

mod forwarded;
mod path;

pub use forwarded::Forwarded;
pub use path::RemovePrefix;
