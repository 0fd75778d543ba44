//! `derbent simulate`: the articles' cases and what a shell sees.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn conf(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(file)
}

fn simulate(config: &Path, timeline: &Path, more: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_derbent"));
    command.arg("simulate").arg("-c").arg(config).arg("--timeline").arg(timeline).args(more);
    for name in ["WINDOW", "PERIOD", "MODE", "POLICY", "AVAILABLE", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().expect("running derbent")
}

/// What came of an article's case, by the names of its files.
fn told(config: &str, timeline: &str, seed: u64, environment: &[(&str, &str)]) -> Value {
    let (config, timeline) = (conf(&format!("articles/{config}.yaml")), conf(&format!("timelines/{timeline}.yaml")));
    let seed = seed.to_string();
    let output = simulate(&config, &timeline, &["--json", "--explain", "--seed", &seed], environment);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Of a destination, when it went out and came back, in milliseconds.
fn absences(told: &Value, id: &str) -> Vec<(u64, Option<u64>)> {
    let of = told["destinations"].as_array().unwrap().iter().find(|of| of["id"] == id).expect("the destination");
    let spans = of["out"].as_array().unwrap().iter();
    spans.map(|span| (span["from_ms"].as_u64().unwrap(), span["to_ms"].as_u64())).collect()
}

fn count(told: &Value, status: &str) -> u64 {
    told["answers"][status].as_u64().unwrap_or(0)
}

#[test]
fn given_a_dead_destination_when_600_requests_come_then_out_after_the_articles_20_or_so_and_by_default_after_5() {
    for seed in 1..=5 {
        let yarp = told("yarp", "killed-cold", seed, &[]);
        assert_eq!((yarp["requests"].as_u64(), count(&yarp, "200") + count(&yarp, "502")), (Some(600), 600));
        assert!((10..=29).contains(&count(&yarp, "502")), "{}", yarp["answers"]);
        assert!(matches!(absences(&yarp, "catalog-2")[..], [(_, None)]), "{yarp:#}");
        let ours = told("defaults", "killed-cold", seed, &[]);
        // The 5th ejects; what was under way by then fails too.
        assert!((5..=24).contains(&count(&ours, "502")), "{}", ours["answers"]);
        let why = ours["steps"][0]["why"].as_str().unwrap();
        assert!(why.ends_with("failures in a row 5 ≥ 5"), "{why}");
        assert_eq!(ours["steps"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn given_600_good_answers_when_a_destination_dies_then_as_yarp_never_out_and_by_default_at_the_5th_failure() {
    for seed in 1..=5 {
        let yarp = told("yarp", "killed-warm", seed, &[]);
        assert!((70..=130).contains(&count(&yarp, "502")), "{}", yarp["answers"]);
        assert!(yarp["steps"].as_array().unwrap().is_empty(), "{yarp:#}");
        let ours = told("defaults", "killed-warm", seed, &[]);
        assert!((5..=24).contains(&count(&ours, "502")), "{}", ours["answers"]);
        assert!(ours["steps"][0]["why"].as_str().unwrap().ends_with("failures in a row 5 ≥ 5"));
    }
}

#[test]
fn given_an_ejection_when_its_time_is_over_then_as_yarp_that_is_the_window_and_by_default_the_period() {
    let of = |config, environment: &[(&str, &str)]| {
        let told = told(config, "reactivation", 1, environment);
        let (from, to) = absences(&told, "catalog-2")[0];
        (to.expect("it comes back") - from, told["steps"][0]["next"].as_str().unwrap().to_owned())
    };
    let within = |took: u64, period: u64| (period..period + 200).contains(&took);
    let (took, next) = of("yarp", &[("PERIOD", "10s")]);
    assert!(within(took, 60_000), "{took}");
    assert_eq!(next, "reactivation in 60s (period 10s raised to the 60s window)");
    let (took, next) = of("yarp", &[("PERIOD", "10s"), ("WINDOW", "15s")]);
    assert!(within(took, 15_000) && next.contains("raised to the 15s window"), "{took}: {next}");
    let (took, next) = of("yarp", &[("PERIOD", "10s"), ("MODE", "half_open")]);
    assert!(within(took, 10_000) && next == "half-open in 10s", "{took}: {next}");
    assert!(within(of("defaults", &[]).0, 10_000));
}

#[test]
fn given_every_shown_timeline_when_simulated_twice_then_equal_to_the_byte_and_another_seed_is_another_chance() {
    let timelines: Vec<PathBuf> =
        glob::glob(conf("timelines/*.yaml").to_str().unwrap()).unwrap().map(Result::unwrap).collect();
    assert!(timelines.len() >= 4, "{timelines:?}");
    for timeline in timelines {
        let article = !timeline.ends_with("example.yaml");
        let config = conf(if article { "articles/defaults.yaml" } else { "health.yaml" });
        for more in [&["--explain"] as &[&str], &["--json", "--explain"]] {
            let of = |seed: &str| simulate(&config, &timeline, &[more, &["--seed", seed]].concat(), &[]);
            let (first, second, other) = (of("1"), of("1"), of("2"));
            assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
            assert_eq!(first.stdout, second.stdout, "{}", timeline.display());
            assert_ne!(first.stdout, other.stdout, "{}", timeline.display());
        }
    }
}

#[test]
fn given_faults_in_a_timeline_when_simulated_then_all_are_told_with_place_and_nearest_word_and_1() {
    let directory = tempfile::TempDir::new().unwrap();
    let timeline = directory.path().join("t.yaml");
    let text = "lenght: 10s\nload: { rps: 100, concurrency: 2 }\ndestinations:\n  catalog-9: [{ at: 5s, do: refuze }]\n  \
                catalog-1: [{ do: status }]\n";
    std::fs::write(&timeline, text).unwrap();
    let output = simulate(&conf("articles/defaults.yaml"), &timeline, &[], &[]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{told}");
    for fault in [
        ":1:1: lenght: unknown key \"lenght\"; did you mean \"length\"?",
        ":1:1: needs `length`: 120s, or else `requests` for the last of its load",
        ":2:7: load: needs `rps` or `concurrency`, one of them",
        ":4:3: destinations.catalog-9: unknown destination \"catalog-9\"; did you mean \"catalog-1\"?",
        "do: unknown do \"refuze\"; did you mean \"refuse\"?",
        "needs `at`: a time since the start, such as 10s",
        "needs `status`: the status it answers by, such as 503",
    ] {
        assert!(told.contains(fault), "{fault}\n{told}");
    }
    assert!(told.ends_with("7 faults\n"), "{told}");
    let output = simulate(&conf("articles/defaults.yaml"), &directory.path().join("none.yaml"), &[], &[]);
    assert_eq!(output.status.code(), Some(3));
}
