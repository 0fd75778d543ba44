//! Any text as a configuration: a configuration or a report with places inside the text, never a panic.
#![no_main]

use derbent::Config;
use derbent::config::LoadError;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // What other files hold is not made up here; by an escape the word could still be written.
    let text = text.replace("include", "includes");
    if text.contains('\\') {
        return;
    }
    match Config::parse("fuzz.yaml", &text) {
        Ok(config) => assert!(!config.listeners.is_empty() && !config.routes.is_empty()),
        Err(LoadError::Faults(problems)) => {
            let lines = text.split(['\n', '\r']).count() + 1;
            for fault in problems.iter() {
                assert!((1..=lines).contains(&(fault.at.line as usize)), "{fault}");
                assert!(!fault.message.is_empty(), "{fault}");
            }
            assert!(!problems.is_empty() && problems.to_string().contains("fault"));
            assert!(problems.to_json().is_array());
        }
        Err(error) => panic!("{error}"),
    }
});
