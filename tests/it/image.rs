//! The Dockerfile, as text: what an image must have, and that what it copies is there. Nothing is built.

use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The instructions as (word, rest), comments left out and continued lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("Dockerfile")).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = kept.join("\n").replace("\\\n", " ");
    let split = joined.lines().filter_map(|line| line.trim().split_once(' '));
    split.map(|(word, rest)| (word.to_owned(), rest.trim().to_owned())).collect()
}

/// The one instruction `word` of the last stage.
fn last_stage(word: &str) -> String {
    let all = instructions();
    let stage = all.iter().rposition(|(word, _)| word == "FROM").expect("a stage");
    let found: Vec<&String> = all[stage..].iter().filter(|(known, _)| known == word).map(|(_, rest)| rest).collect();
    assert_eq!(found.len(), 1, "{word} in the last stage: {found:?}");
    found[0].clone()
}

/// What is copied from the build context.
fn copied() -> Vec<String> {
    let mut copied = Vec::new();
    for (word, rest) in instructions() {
        let words: Vec<&str> = rest.split_whitespace().collect();
        if word == "COPY" && !rest.starts_with("--from=") {
            copied.extend(words[..words.len() - 1].iter().map(|source| (*source).to_owned()));
        }
    }
    copied
}

fn exec_form(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not the exec form: {text}: {error}"))
}

#[test]
fn given_the_image_when_it_runs_then_its_user_is_not_root() {
    let user = last_stage("USER");
    let ids: Vec<u32> = user.split(':').map(|id| id.parse().expect("a numeric id")).collect();
    assert!(ids.len() == 2 && ids.iter().all(|&id| id > 0), "{user}");
}

#[test]
fn given_the_image_when_it_runs_then_no_shell_is_needed() {
    assert_eq!(exec_form(&last_stage("ENTRYPOINT")), ["/usr/bin/derbent"]);
    assert_eq!(exec_form(&last_stage("CMD")), ["run", "-c", "/etc/derbent/derbent.yaml"]);
    let check = last_stage("HEALTHCHECK");
    let (_, command) = check.split_once("CMD ").expect("a command");
    assert_eq!(exec_form(command), ["/usr/bin/derbent", "healthcheck"]);
}

#[test]
fn given_the_image_when_it_is_stopped_then_the_signal_is_the_one_that_drains() {
    assert_eq!(last_stage("STOPSIGNAL"), "SIGTERM");
}

#[test]
fn given_the_dockerfile_when_it_copies_from_here_then_the_path_exists_and_is_not_ignored() {
    let ignore = std::fs::read_to_string(Path::new(ROOT).join(".dockerignore")).unwrap();
    let copied = copied();
    assert!(copied.contains(&"Cargo.lock".to_owned()), "the locked versions are not copied: {copied:?}");
    for path in copied {
        assert!(Path::new(ROOT).join(&path).exists(), "{path} does not exist");
        assert!(ignore.lines().any(|line| line.strip_prefix('!') == Some(path.as_str())), "{path} is ignored");
    }
}

#[test]
fn given_the_source_when_it_compiles_a_file_in_then_the_dockerfile_copies_it() {
    let copied = copied();
    let root = Path::new(ROOT).canonicalize().unwrap();
    let mut included = 0;
    for file in glob::glob(&format!("{}/src/**/*.rs", root.display())).unwrap().map(Result::unwrap) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (at, word) in text.match_indices("include_str!(\"").chain(text.match_indices("include_bytes!(\"")) {
            // What only `cargo test --doc` reads is not there when the image is built, and need not be.
            if text[..at].trim_end_matches("#[doc = ").trim_end().ends_with("#[cfg(doctest)]") {
                continue;
            }
            let name = text[at + word.len()..].split('"').next().unwrap();
            let whole = file.with_file_name(name).canonicalize().unwrap_or_else(|error| panic!("{name}: {error}"));
            let path = whole.strip_prefix(&root).unwrap();
            assert!(copied.iter().any(|copied| path.starts_with(copied)), "{} is not copied", path.display());
            included += 1;
        }
    }
    assert!(included > 0, "the demo's configuration at least is compiled in");
    assert!(!root.join("build.rs").exists() || copied.contains(&"build.rs".to_owned()), "build.rs is not copied");
}

#[test]
fn given_the_dockerfile_when_it_names_an_image_then_the_version_is_pinned() {
    for (_, image) in instructions().into_iter().filter(|(word, _)| word == "FROM") {
        let name = image.split_whitespace().next().unwrap_or_default();
        let tag = name.split_once(':').map(|(_, tag)| tag);
        assert!(tag.is_some_and(|tag| tag != "latest"), "FROM {image}");
    }
}
