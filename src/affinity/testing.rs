//! Policies built for tests, out of their parameters as a file has them.

use super::{Affinity, Entry, Recall, Scope};
use crate::config::{Config, Located, Problems, Section, Spot};
use crate::model::RequestView;
use crate::model::testing::request;
use http::{HeaderMap, HeaderValue, header};
use std::io::Write;
use tempfile::NamedTempFile;

pub struct Built(pub Box<dyn Affinity>);

impl Built {
    /// By a Cookie field.
    pub fn recall(&self, field: &str) -> Recall {
        let field = HeaderValue::from_bytes(field.as_bytes()).expect("a value");
        let headers: HeaderMap = std::iter::once((header::COOKIE, field)).collect();
        self.0.recall(&RequestView { headers: &headers, ..request() })
    }
}

/// What `read` makes of parameters, and its faults.
fn read<T>(written: &str, read: impl FnOnce(&mut Section<'_>, &Spot) -> T) -> (T, Vec<String>) {
    let text = format!(
        "listeners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ cluster: c }} }}\nclusters: {{ c: {{ destinations: \
         [\"http://127.0.0.1:1\"], load_balancing: {} }} }}",
        written.replacen('{', "{ policy: Any,", 1).replace(", }", " }")
    );
    let config = Config::parse("t.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
    let mut problems = Problems::default();
    let mut params = config.clusters[0].load_balancing.params(&mut problems);
    let at = params.at().clone();
    let result = read(&mut params, &at);
    params.finish();
    (result, problems.iter().map(ToString::to_string).collect())
}

/// What `read` makes of faultless parameters.
pub fn params<T>(written: &str, reads: impl FnOnce(&mut Section<'_>, &Spot) -> T) -> T {
    let (result, faults) = read(written, reads);
    assert!(faults.is_empty(), "{faults:?}");
    result
}

fn build(entry: Entry, key_name: &str, written: &str, ids: &[&str]) -> (Box<dyn Affinity>, Vec<String>) {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    read(written, |params, at| {
        let key_name = Located { value: key_name.to_owned(), at: at.clone() };
        (entry.build)(params, &Scope { key_name: &key_name, ids: &ids })
    })
}

pub fn built(entry: Entry, key_name: &str, written: &str, ids: &[&str]) -> Built {
    let (policy, faults) = build(entry, key_name, written, ids);
    assert!(faults.is_empty(), "{faults:?}");
    Built(policy)
}

pub fn faults(entry: Entry, key_name: &str, written: &str, ids: &[&str]) -> Vec<String> {
    build(entry, key_name, written, ids).1
}

/// With one key in it.
pub fn key_file() -> NamedTempFile {
    file("0000000000000000000000000000000000000000000000000000000000000001\n")
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

/// What `read` makes of a `key_file` of this text, or its first fault.
pub fn key_of_file<T>(text: &str, reads: impl FnOnce(&mut Section<'_>, &Spot) -> T) -> Result<T, String> {
    let file = file(text);
    let (result, faults) = read(&format!("{{ key_file: {} }}", file.path().display()), reads);
    faults.into_iter().next().map_or(Ok(result), Err)
}
