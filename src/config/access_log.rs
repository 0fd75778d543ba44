use super::node::quote;
use super::{Located, Section};
use std::path::PathBuf;

/// Section `access_log`: one line a request. Without it, or by `off`, there is none.
#[derive(Debug, Clone)]
pub struct AccessLog {
    /// `None`, written `-` and the default, is standard output. A relative one starts from the directory of the file that
    /// names it.
    pub path: Option<PathBuf>,
    /// Default JSON.
    pub format: AccessFormat,
    /// In place of a format: text with `{fields}`. Which there are is the log's own business.
    pub template: Option<Located<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessFormat {
    Json,
    Combined,
}

impl AccessLog {
    pub(super) fn read(root: &mut Section<'_>) -> Option<Self> {
        if root.off("access_log") {
            return None;
        }
        root.section("access_log", |section| {
            let path = section.text("path").filter(|path| path.value != "-").map(|path| path.beside_its_file());
            let formats = [("json", AccessFormat::Json), ("combined", AccessFormat::Combined)];
            let format = section.word("format", &formats);
            let template = section.text("template");
            if section.has("format") && section.has("template") {
                let at = section.spot_of("template");
                section.problem(&at, "a template stands in place of `format`; take one of them away");
            }
            AccessLog { path: path.map(|path| path.value), format: format.unwrap_or(AccessFormat::Json), template }
        })
    }

    /// `json to -`
    pub(super) fn shown(&self) -> String {
        let path = self.path.as_ref().map_or_else(|| "-".to_owned(), |path| path.display().to_string());
        match (&self.template, self.format) {
            (Some(template), _) => format!("{} to {path}", quote(&template.value)),
            (None, AccessFormat::Json) => format!("json to {path}"),
            (None, AccessFormat::Combined) => format!("combined to {path}"),
        }
    }
}
