//! What a process takes from its file at its start and cannot take again. A file read later that says otherwise is refused
//! whole, rather than half obeyed.

use super::{AccessLog, Config, Listener, Located, LogFormat, Node, Problems, Spot};
use std::path::PathBuf;

/// As people read it. The place's path is the key; a key that is not written has its default, in the words of the file where
/// the machine decides.
pub(super) type Fixed = Located<String>;

impl Config {
    /// Makes this one ready to follow `started` in the same process: its listeners take the other's order, and what would need
    /// a restart is a fault.
    pub fn follow(&mut self, started: &Config, problems: &mut Problems) {
        let order =
            |listener: &Listener| started.listeners.iter().position(|old| old.name.value == listener.name.value);
        self.listeners.sort_by_key(|listener| order(listener).unwrap_or(usize::MAX));
        let same = |one: &Fixed, other: &Fixed| one.at.path == other.at.path;
        for new in &self.fixed {
            let Some(old) = started.fixed.iter().find(|old| same(old, new)) else {
                let message =
                    format!("{} needs a restart, or an upgrade: it was not there when the process started", new.value);
                problems.push(&new.at, message);
                continue;
            };
            if old.value != new.value {
                let message =
                    format!("{} needs a restart, or an upgrade: the process runs with {}", new.value, old.value);
                problems.push(&new.at, message);
            }
        }
        for old in &started.fixed {
            if !self.fixed.iter().any(|new| same(old, new)) {
                // What is not there has no place: that of a sister must do.
                let near = self.listeners.first().map_or(&old.at, |listener| &listener.name.at);
                let at = Spot { path: old.at.path.clone(), ..near.clone() };
                problems.push(
                    &at,
                    format!("to be without it needs a restart, or an upgrade: the process runs with {}", old.value),
                );
            }
        }
    }
}

/// Of a configuration just read from `root`.
pub(super) fn of(root: &Node, config: &Config) -> Vec<Fixed> {
    let Config { server, admin, log, access_log, listeners, .. } = config;
    let fixed = |path: &str, value: String| Fixed { value, at: place(root, path).0 };
    // What the machine says may change while the file does not.
    let by_machine = |path: &str, word: &str, value: String| match place(root, path).1 {
        Some(text) if text != word => fixed(path, value),
        _ => fixed(path, word.to_owned()),
    };
    let path = |file: &Option<Located<PathBuf>>| {
        file.as_ref().map_or_else(|| "none".to_owned(), |file| file.value.display().to_string())
    };
    let format = if log.format == LogFormat::Json { "json" } else { "text" };
    let token = admin.as_ref().and_then(|admin| admin.token_file.as_ref());
    let mut all = vec![
        by_machine("server.name", "the host name", server.name.clone()),
        by_machine("server.threads", "auto", server.threads.to_string()),
        fixed("server.keepalive_pool", server.keepalive_pool.to_string()),
        fixed("server.drain", server.drain.shown()),
        fixed("server.upgrade_socket", path(&server.upgrade_socket)),
        fixed("server.pid_file", path(&server.pid_file)),
        fixed("admin", admin.as_ref().map_or_else(|| "off".to_owned(), |admin| admin.address.value.to_string())),
        fixed("admin.token_file", token.map_or_else(|| "none".to_owned(), |file| file.value.display().to_string())),
        fixed("log.level", log.level.to_string().to_lowercase()),
        fixed("log.format", format.to_owned()),
        fixed("access_log", access_log.as_ref().map_or_else(|| "off".to_owned(), AccessLog::shown)),
    ];
    all.extend(listeners.iter().map(|listener| {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        let value = format!("{} ({scheme}: {})", listener.address.value, listener.protocols);
        Fixed { value, at: Spot { path: format!("listeners.{}", listener.name.value), ..listener.address.at.clone() } }
    }));
    all
}

/// Where the value at a key path stands, or the nearest section above it; and its text, where it is a scalar.
fn place<'a>(root: &'a Node, path: &str) -> (Spot, Option<&'a str>) {
    let mut node = root;
    for key in path.split('.') {
        match node.below().find(|(name, _)| *name == key) {
            Some((_, below)) => node = below,
            None => return (Spot { path: path.to_owned(), ..node.at.clone() }, None),
        }
    }
    (Spot { path: path.to_owned(), ..node.at.clone() }, node.scalar())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "server: { threads: 2 }\nadmin: { address: \"127.0.0.1:5390\" }\nlisteners:\n  one: 127.0.0.1:81\n  \
                         two: { address: \"127.0.0.1:82\", protocols: [http1, h2c] }\n";
    const REST: &str = "routes: { all: { respond: { status: 200 } } }\n";

    fn read(text: &str) -> Config {
        Config::parse("t.yaml", &format!("{text}{REST}")).unwrap_or_else(|faults| panic!("{faults}"))
    }

    /// What is said when `text` shall follow [`START`].
    fn told(text: &str) -> Vec<String> {
        let mut next = read(text);
        let mut problems = next.problems();
        next.follow(&read(START), &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn given_what_cannot_change_when_it_does_then_the_key_the_new_and_the_old_value_are_told() {
        let cases = [
            (
                "threads: 2",
                "threads: 3",
                "t.yaml:1:20: server.threads: 3 needs a restart, or an upgrade: the process runs with 2",
            ),
            (
                "threads: 2",
                "threads: auto",
                "t.yaml:1:20: server.threads: auto needs a restart, or an upgrade: the process runs with 2",
            ),
            (
                "threads: 2",
                "threads: 2, name: gw",
                "t.yaml:1:29: server.name: gw needs a restart, or an upgrade: the process runs with the host name",
            ),
            (
                "threads: 2",
                "threads: 2, keepalive_pool: 7",
                "t.yaml:1:39: server.keepalive_pool: 7 needs a restart, or an upgrade: the process runs with 1024",
            ),
            (
                "{ address: \"127.0.0.1:5390\" }",
                "off",
                "t.yaml:2:8: admin: off needs a restart, or an upgrade: the process runs with 127.0.0.1:5390",
            ),
            (
                "5390\" }",
                "5390\", token_file: /t }",
                "t.yaml:2:49: admin.token_file: /t needs a restart, or an upgrade: the process runs with none",
            ),
            (
                "listeners:",
                "log: { level: debug }\nlisteners:",
                "t.yaml:3:15: log.level: debug needs a restart, or an upgrade: the process runs with info",
            ),
            (
                "listeners:",
                "access_log: { path: logs/a, template: \"{status}\" }\nlisteners:",
                "t.yaml:3:13: access_log: \"{status}\" to logs/a needs a restart, or an upgrade: the process runs with off",
            ),
            (
                "one: 127.0.0.1:81",
                "one: 127.0.0.1:83",
                "t.yaml:4:8: listeners.one: 127.0.0.1:83 (http: http1) needs a restart, or an upgrade: the process runs with 127.0.0.1:81 (http: http1)",
            ),
            (
                "[http1, h2c]",
                "h2c",
                "t.yaml:5:19: listeners.two: 127.0.0.1:82 (http: h2c) needs a restart, or an upgrade: the process runs with 127.0.0.1:82 (http: http1, h2c)",
            ),
            (
                "  one: 127.0.0.1:81\n",
                "",
                "t.yaml:4:3: listeners.one: to be without it needs a restart, or an upgrade: the process runs with 127.0.0.1:81 (http: http1)",
            ),
            (
                "  one:",
                "  new: 127.0.0.1:83\n  one:",
                "t.yaml:4:8: listeners.new: 127.0.0.1:83 (http: http1) needs a restart, or an upgrade: it was not there when the process started",
            ),
        ];
        for (old, new, expected) in cases {
            assert!(START.contains(old));
            assert_eq!(told(&START.replacen(old, new, 1)), [expected], "{new}");
        }
    }

    #[test]
    fn given_several_of_them_when_changed_then_each_is_told() {
        let text = START.replace("threads: 2", "threads: 3").replace(":82", ":84");
        assert_eq!(told(&text).len(), 2, "{:?}", told(&text));
    }

    #[test]
    fn given_the_same_in_other_words_and_order_when_read_then_it_follows_in_the_order_of_the_start() {
        let text = "listeners:\n  two: { protocols: [h2c, http1], address: \"127.0.0.1:82\" }\n  one: { address: \"127.0.0.1:81\" }\n\
                    log: { level: info, format: text }\nserver: { threads: 2, keepalive_pool: 1024, zone: b }\n";
        assert_eq!(told(text), Vec::<String>::new());
        let (mut next, mut problems) = (read(text), Problems::default());
        next.follow(&read(START), &mut problems);
        let names: Vec<&str> = next.listeners.iter().map(|listener| listener.name.value.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
    }
}
