//! Every configuration that we show is one that loads.

use crate::support::shown_configurations;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `derbent check` of a file from the project's own directory.
fn check(file: &Path, environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_derbent"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["check".as_ref(), "-c".as_ref(), file.as_os_str()])
        .env_remove("POLICY")
        .env_remove("AVAILABLE")
        .envs(environment.iter().copied())
        .output()
        .expect("running derbent")
}

#[test]
fn given_the_files_of_conf_when_checked_then_all_are_fine() {
    let files = shown_configurations();
    assert!(files.iter().any(|file| file.ends_with("demo.yaml")), "{files:?}");
    for file in files {
        let output = check(&file, &[]);
        assert!(output.status.success(), "{}\n{}", file.display(), String::from_utf8_lossy(&output.stderr));
        // The articles' files say what the articles say, be it warned of or not.
        let article = file.iter().any(|part| part == "articles");
        assert!(article || output.stderr.is_empty(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn given_a_file_with_a_variable_when_checked_with_each_word_it_names_then_fine_and_another_is_a_fault() {
    let words: [(&str, &[&str]); 2] = [
        ("POLICY", &["RoundRobin", "Random", "PowerOfTwoChoices", "LeastRequests"]),
        ("AVAILABLE", &["HealthyOrPanic", "HealthyAndUnknown"]),
    ];
    for (variable, words) in words {
        let uses = |file: &PathBuf| std::fs::read_to_string(file).unwrap().contains(&format!("${{{variable}"));
        let files: Vec<PathBuf> = shown_configurations().into_iter().filter(uses).collect();
        assert!(!files.is_empty(), "no file uses {variable}");
        for file in files {
            for word in words {
                assert!(check(&file, &[(variable, word)]).status.success(), "{}: {word}", file.display());
            }
            assert_eq!(check(&file, &[(variable, "Nonsense")]).status.code(), Some(1), "{}", file.display());
        }
    }
}
