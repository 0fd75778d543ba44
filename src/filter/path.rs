//! `path_remove_prefix: /api/v1`: whole segments only, so `/api/v1x` stays as it is. Every other byte of the path stays.

#[derive(Debug, Clone)]
pub struct RemovePrefix(String);

impl RemovePrefix {
    pub fn new(prefix: &str) -> Self {
        RemovePrefix(prefix.trim_end_matches('/').to_string())
    }

    /// The path that goes on; unchanged when the prefix does not match. Empty stands for `/`.
    pub fn apply<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(self.0.as_str()) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_prefix_when_applied_then_whole_segments_go_and_all_else_stays() {
        let filter = RemovePrefix::new("/api/v1/");
        for (path, left) in [
            ("/api/v1/books", "/books"),
            ("/api/v1/", "/"),
            ("/api/v1", ""),
            ("/api/v1x/books", "/api/v1x/books"),
            ("/other", "/other"),
            ("/api/v1//a%2Fb/../c;d", "//a%2Fb/../c;d"),
        ] {
            assert_eq!(filter.apply(path), left);
        }
    }
}
