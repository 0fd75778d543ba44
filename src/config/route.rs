use super::Located;
use http::Method;

/// One entry of section `routes`.
#[derive(Debug, Clone)]
pub struct Route {
    pub name: Located<String>,
    pub matches: Match,
    /// Lower wins, before any specificity. Default 0.
    pub order: i32,
    pub action: Action,
    pub transforms: Vec<Transform>,
}

/// What a request must have; an empty list asks for nothing.
#[derive(Debug, Clone, Default)]
pub struct Match {
    /// Lower case; `*.` in front stands for one or more labels. A port, where written, must agree.
    pub hosts: Vec<Located<String>>,
    /// A template: `{name}` one segment, `{**name}` the rest. `None` = every path.
    pub path: Option<Located<String>>,
    pub methods: Vec<Method>,
}

#[derive(Debug, Clone)]
pub enum Action {
    Cluster(Located<String>),
    /// `to` may name the path template's `{parameters}`.
    Redirect { to: Located<String>, status: u16 },
    Respond { status: u16, body: String },
}

#[derive(Debug, Clone)]
pub enum Transform {
    /// Segment-wise: `/api` takes `/api/x` to `/x`, and leaves `/apix` alone.
    PathRemovePrefix(String),
}
