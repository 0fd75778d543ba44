//! The doors to a configuration: a path or a text in, a [`Config`] or every fault out. No name is resolved and no file
//! but the configuration's own is opened; `runtime::compile` does that and adds to the same report.

use super::env::Env;
use super::matcher::ranges;
use super::section::Section;
use super::server::exclude_each_other;
use super::{
    AccessLog, Admin, Cluster, Config, Listener, Log, Node, Problems, Route, Server, Service, fingerprint, fixed,
    include,
};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no [`Config`].
#[derive(Debug)]
pub enum LoadError {
    /// The main file cannot be read; an included one that cannot is a fault.
    Io { path: PathBuf, source: io::Error },
    /// What the operator wrote is wrong: all of it that was found.
    Faults(Problems),
}

impl Config {
    /// Reads a file and what it includes, with this process's environment.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(path: &Path) -> Result<Config, LoadError> {
        Config::load_with(path, &process_env)
    }

    /// As [`Config::load`], with the environment that `env` tells of.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load_with(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, LoadError> {
        faultless(Config::draft(path, env)?)
    }

    /// Reads a text; `name` stands in messages, and relative paths start from its directory.
    ///
    /// # Errors
    /// [`LoadError::Faults`].
    pub fn parse(name: &str, text: &str) -> Result<Config, LoadError> {
        faultless(draft(name, text.as_bytes(), &process_env)?)
    }

    /// As far as it can be read, with the faults so far: for a caller that goes on judging, so that all faults come
    /// in one report. Every cluster written is there, by name, whatever is wrong inside it. Nothing may run from a draft
    /// with faults.
    ///
    /// # Errors
    /// When a file cannot be read or is no YAML: what it defines would be missed everywhere else.
    pub fn draft(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<(Config, Problems), LoadError> {
        draft_of(path, include::read_main(path), env)
    }

    /// As [`Config::draft`], for a process that was made of this file before: a pipe has given what it had, and is waited
    /// for no more.
    ///
    /// # Errors
    /// Also when it is no regular file.
    pub fn draft_again(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<(Config, Problems), LoadError> {
        draft_of(path, include::read_file(path), env)
    }

    /// An empty list of faults that knows the texts of this configuration's files, for faults found later.
    pub fn problems(&self) -> Problems {
        Problems::of(self.sources.clone())
    }

    pub(super) fn read(root: &Node, problems: &mut Problems) -> Config {
        let sources = problems.sources().clone();
        let fingerprint = fingerprint::of(root);
        let tree = root;
        let mut root = Section::of_map(tree, problems);
        // Followed by now; known all the same.
        root.words("include");
        root.plain("version", "1, the only version there is", |text| (text == "1").then_some(()));
        let mut config = Config {
            server: root.defaulted("server", Server::read),
            admin: Admin::read(&mut root),
            log: root.defaulted("log", Log::read),
            access_log: AccessLog::read(&mut root),
            trusted_proxies: ranges(&mut root, "trusted_proxies"),
            listeners: Listener::read_all(&mut root),
            routes: Route::read_all(&mut root),
            clusters: Cluster::read_all(&mut root),
            services: Service::read_all(&mut root),
            fingerprint,
            fixed: Vec::new(),
            sources,
        };
        config.fixed = fixed::of(tree, &config);
        if let Some(admin) = &config.admin {
            let taken = |listener: &&Listener| exclude_each_other(listener.address.value, admin.address.value);
            for listener in config.listeners.iter().filter(taken) {
                root.problem(&listener.address.at, "the admin listener has this address already");
            }
        }
        root.finish();
        config
    }
}

fn draft_of(path: &Path, bytes: io::Result<Vec<u8>>, env: Env<'_>) -> Result<(Config, Problems), LoadError> {
    let bytes = bytes.map_err(|source| LoadError::Io { path: path.to_owned(), source })?;
    draft(&path.to_string_lossy(), &bytes, env)
}

fn draft(name: &str, bytes: &[u8], env: Env<'_>) -> Result<(Config, Problems), LoadError> {
    let mut problems = Problems::default();
    match include::gather(name, bytes, env, &mut problems) {
        Some(root) => {
            let config = Config::read(&root, &mut problems);
            Ok((config, problems))
        }
        None => Err(LoadError::Faults(problems)),
    }
}

fn faultless((config, problems): (Config, Problems)) -> Result<Config, LoadError> {
    if problems.is_empty() { Ok(config) } else { Err(LoadError::Faults(problems)) }
}

fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Io { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            LoadError::Faults(problems) => problems.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Io { source, .. } => Some(source),
            LoadError::Faults(_) => None,
        }
    }
}
