//! `derbent proxy`: no file needed. It writes the file that its arguments amount to, and goes the way of `run` from there.

use super::{FAULTS, load};
use crate::app::Derbent;
use crate::config::{self, Config};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct ProxyArgs {
    /// Where to listen; :8080 is every address
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// The destinations
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// The admin address, or off
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5390")]
    admin: String,
    /// Print the file that this amounts to, instead of running it
    #[arg(long)]
    print: bool,
}

pub fn run(args: ProxyArgs) -> ExitCode {
    let Ok(text) = config::write(&file(&args)) else {
        eprintln!("these arguments make no file");
        return ExitCode::from(FAULTS);
    };
    if args.print {
        super::print(text);
        return ExitCode::SUCCESS;
    }
    match Config::parse("(derbent proxy)", &text) {
        Ok(config) => load::serve(&config.clone(), Derbent::from_config(config).source("derbent proxy")),
        Err(error) => load::report(&error),
    }
}

fn file(args: &ProxyArgs) -> Value {
    let listen = if args.listen.starts_with(':') { format!("0.0.0.0{}", args.listen) } else { args.listen.clone() };
    let admin = match args.admin.as_str() {
        "off" => json!("off"),
        address => json!({ "address": address }),
    };
    json!({
        "admin": admin,
        "listeners": { "web": listen },
        "routes": { "all": { "cluster": "app" } },
        "clusters": { "app": { "destinations": args.to } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_arguments_when_written_as_a_file_then_it_reads_back_as_what_was_asked() {
        let args = ProxyArgs {
            listen: ":8080".into(),
            to: vec!["http://127.0.0.1:1".into(), "http://127.0.0.1:2/x".into()],
            admin: "off".into(),
            print: true,
        };
        let config = Config::parse("test", &config::write(&file(&args)).expect("a file")).expect("a valid file");
        assert_eq!(config.listeners[0].address.value, ([0, 0, 0, 0], 8080).into());
        assert!(config.admin.is_none());
        let addresses: Vec<&str> = config.clusters[0].destinations.iter().map(|d| d.address.value.as_str()).collect();
        assert_eq!(addresses, ["http://127.0.0.1:1", "http://127.0.0.1:2/x"]);
    }
}
