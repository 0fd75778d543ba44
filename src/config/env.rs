//! `${NAME}` and `${NAME:-default}` in values. Substituted after parsing, so that a variable can hold any text and
//! never adds keys; keys themselves are not touched. The environment comes as a function.

use super::node::Kind;
use super::{Node, Problems};

/// The value of a variable; `None` when it is not set.
pub(super) type Env<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Substitutes in every value of the tree. A variable that is not set and has no default is a fault.
pub(super) fn expand(node: &mut Node, env: Env<'_>, problems: &mut Problems) {
    match &mut node.kind {
        Kind::Null => {}
        Kind::List(items) => items.iter_mut().for_each(|item| expand(item, env, problems)),
        Kind::Map(entries) => entries.iter_mut().for_each(|(_, value)| expand(value, env, problems)),
        Kind::Scalar { text, quoted } => match substitute(text, env) {
            Ok(None) => {}
            Ok(Some(text)) if *quoted => node.kind = Kind::Scalar { text, quoted: false },
            Ok(Some(text)) => node.kind = Kind::plain(text),
            Err(message) => problems.push(&node.at, message),
        },
    }
}

/// `None` when there is nothing to substitute. What is substituted may be a number even where the quotes of a flow
/// map were needed to write it.
fn substitute(text: &str, env: Env<'_>) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            out += before;
            out += "${";
            rest = &after[2..];
            continue;
        }
        let (inside, after) = after[2..].split_once('}').ok_or_else(form)?;
        out += before;
        out += &variable(inside, env)?;
        rest = after;
    }
    Ok(Some(out + rest))
}

/// As in a shell, `:-` also stands in for an empty value.
fn variable(inside: &str, env: Env<'_>) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(form());
    }
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => {
            Err(format!("the environment variable {name} is not set; set it, or write a default: ${{{name}:-…}}"))
        }
    }
}

fn form() -> String {
    "expected ${NAME} or ${NAME:-default}; a literal ${ is written $${".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "ZONE" => Some("zone-a".into()),
            "EMPTY" => Some(String::new()),
            "STRANGE" => Some("x: [1]\n- ${ZONE}".into()),
            _ => None,
        }
    }

    #[test]
    fn given_variables_when_substituted_then_values_defaults_and_literals() {
        for (text, result) in [
            ("plain $ text }", None),
            ("${ZONE}", Some("zone-a")),
            ("a${ZONE}b${ZONE}", Some("azone-abzone-a")),
            ("${NONE:-http://x:1}", Some("http://x:1")),
            ("${EMPTY:-d}", Some("d")),
            ("${EMPTY}", Some("")),
            ("${NONE:-}", Some("")),
            ("$${ZONE}", Some("${ZONE}")),
            ("é$${ZONE}${ZONE}", Some("é${ZONE}zone-a")),
            ("${STRANGE}", Some("x: [1]\n- ${ZONE}")),
        ] {
            assert_eq!(substitute(text, &env), Ok(result.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn given_bad_references_when_substituted_then_faults_that_say_the_form() {
        for text in ["${", "${ZONE", "${}", "${1A}", "${A B}", "${ZONE-x}", "${:-x}"] {
            assert_eq!(substitute(text, &env), Err(form()), "{text}");
        }
        assert!(substitute("${NONE}", &env).unwrap_err().contains("NONE is not set"));
    }

    #[test]
    fn given_variables_in_a_file_when_loaded_then_values_may_be_numbers_and_never_structure() {
        use crate::config::{Config, LoadError};
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.yaml");
        let text = "listeners: { web: 0.0.0.0:1 }\nroutes: { a: { cluster: c } }\nclusters: { c: { destinations: [\"http://a\"] } }\n\
                    server:\n  zone: ${ZONE}\n  keepalive_pool: ${POOL:-7}\n  name: \"$${x}\"\nlog: { level: \"${LEVEL:-warn}\" }\n\
                    admin: ${ADMIN}\n";
        std::fs::write(&path, text).expect("written");
        let env = |name: &str| match name {
            "ZONE" => Some("a\nname: evil".to_owned()),
            "ADMIN" => Some("off".to_owned()),
            _ => None,
        };
        let config = Config::load_with(&path, &env).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.server.zone.as_deref(), Some("a\nname: evil"));
        assert_eq!((config.server.name.as_str(), config.server.keepalive_pool), ("${x}", 7));
        assert_eq!(config.log.level, log::LevelFilter::Warn);
        assert!(config.admin.is_none());

        let Err(LoadError::Faults(problems)) = Config::load_with(&path, &|_| None) else { panic!("ZONE is not set") };
        let first = problems.iter().next().expect("a fault").clone();
        assert_eq!((first.at.line, first.at.path.as_str()), (5, "server.zone"));
        assert!(first.message.starts_with("the environment variable ZONE is not set"), "{first}");
    }
}
