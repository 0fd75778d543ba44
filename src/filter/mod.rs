//! What changes a request on its way, one filter a file.

mod path;

pub use path::RemovePrefix;
