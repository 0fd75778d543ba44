//! How the process takes its leave: the part of section `server` about that.

use super::Section;
use super::units::show_duration;
use std::time::Duration;

/// Section `server.drain`: instants, counted from the signal, each later than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// New connections are taken until then, and every answer says that its connection closes; 0s–24h. Default 2s.
    pub close_listeners: Duration,
    /// Requests in flight, streams and WebSockets may last until then; up to 24h. Default 8s.
    pub end: Duration,
    /// The process is gone by then, whatever hangs; up to 24h. Default 9s.
    pub kill: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Drain { close_listeners: seconds(2), end: seconds(8), kill: seconds(9) }
    }
}

impl Drain {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        let default = Drain::default();
        let mut instant = |key, default| section.duration(key, Duration::ZERO..=DAY).unwrap_or(default);
        let drain = Drain {
            close_listeners: instant("close_listeners", default.close_listeners),
            end: instant("end", default.end),
            kill: instant("kill", default.kill),
        };
        let steps =
            [("close_listeners", drain.close_listeners, "end", drain.end), ("end", drain.end, "kill", drain.kill)];
        for (earlier, before, later, after) in steps.into_iter().filter(|(_, before, _, after)| before >= after) {
            let shown = |key: &str, instant| {
                let default = if section.has(key) { "" } else { ", its default" };
                format!("`{key}` ({}{default})", show_duration(instant))
            };
            let message = format!("{} must come after {}", shown(later, after), shown(earlier, before));
            let at = section.spot_of(if section.has(later) { later } else { earlier });
            section.problem(&at, message);
        }
        drain
    }

    /// As a file would say it.
    pub(super) fn shown(&self) -> String {
        let [close, end, kill] = [self.close_listeners, self.end, self.kill].map(show_duration);
        format!("{{ close_listeners: {close}, end: {end}, kill: {kill} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(drain: &str) -> Result<Drain, String> {
        let text = format!(
            "server: {{ drain: {drain} }}\nlisteners: {{ web: \"127.0.0.1:1\" }}\nroutes: {{ all: {{ respond: {{}} }} }}\n"
        );
        Config::parse("t.yaml", &text).map(|config| config.server.drain).map_err(|faults| faults.to_string())
    }

    #[test]
    fn given_instants_when_they_ascend_then_they_are_taken_and_the_rest_has_its_default() {
        assert_eq!(read("{}"), Ok(Drain::default()));
        let ms = Duration::from_millis;
        assert_eq!(
            read("{ close_listeners: 0s, end: 500ms }"),
            Ok(Drain { close_listeners: ms(0), end: ms(500), kill: ms(9_000) })
        );
    }

    #[test]
    fn given_instants_out_of_order_when_read_then_the_fault_names_both_and_which_is_a_default() {
        for (drain, told) in [
            ("{ end: 30s }", "server.drain.end: `kill` (9s, its default) must come after `end` (30s)"),
            ("{ end: 2s }", "server.drain.end: `end` (2s) must come after `close_listeners` (2s, its default)"),
            ("{ kill: 8s }", "server.drain.kill: `kill` (8s) must come after `end` (8s, its default)"),
            ("{ close_listeners: 1m, end: 30s, kill: 2m }", "`end` (30s) must come after `close_listeners` (1m)"),
            ("{ kill: 25h }", "server.drain.kill: expected a duration from 0s to 24h"),
        ] {
            let faults = read(drain).unwrap_err();
            assert!(faults.contains(told) && faults.ends_with("\n1 fault"), "{drain}: {faults}");
        }
    }
}
