//! `derbent healthcheck`: is the instance on this machine ready? For images without a shell and curl.

use super::duration::positive;
use super::get::Client;
use super::target::Target;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

const NOT_WELL: u8 = 1;
const UNREACHABLE: u8 = 3;

/// Ask the admin address; exit code 0 when it answers 200, 1 for another status, 3 when unreachable
#[derive(Debug, clap::Args)]
pub struct HealthcheckArgs {
    /// The admin address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5390")]
    pub admin: String,
    /// How long the answer may take
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = positive)]
    pub timeout: Duration,
    /// /ready: takes traffic; /health: lives, also while it drains
    #[arg(long, default_value = "/ready")]
    pub path: String,
}

/// Prints one line, on stdout when well, else on stderr.
pub fn run(args: HealthcheckArgs) -> ExitCode {
    let (line, code) = match ask(&args) {
        Ok((line, 200)) => {
            // The exit code is the answer; a closed stdout does not change it.
            let _ = writeln!(std::io::stdout(), "{line}");
            return ExitCode::SUCCESS;
        }
        Ok((line, _)) => (line, NOT_WELL),
        Err((line, code)) => (line, code),
    };
    eprintln!("{line}");
    ExitCode::from(code)
}

fn ask(args: &HealthcheckArgs) -> Result<(String, u16), (String, u8)> {
    let url = format!("http://{}{}", args.admin, args.path);
    let target: Target = url.parse().map_err(|fault| (format!("{url}: {fault}"), 2))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|fault| (format!("no runtime: {fault}"), UNREACHABLE))?;
    let deadline = Instant::now() + args.timeout;
    match runtime.block_on(async { Client::new(&target).get(deadline).await }) {
        Ok((status, _)) => Ok((format!("{url}: {status}"), status.as_u16())),
        Err(failure) => Err((format!("{url}: {failure}"), UNREACHABLE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(admin: String, path: &str) -> HealthcheckArgs {
        HealthcheckArgs { admin, timeout: Duration::from_secs(30), path: path.to_owned() }
    }

    #[test]
    fn given_an_instance_when_asked_then_its_status_or_its_absence_decides() {
        let server = tokio::runtime::Runtime::new().unwrap();
        let instance = crate::demo::Instance::start("gateway", 0, Duration::ZERO);
        let instance = server.block_on(instance).unwrap();
        let admin = format!("127.0.0.1:{}", instance.port());
        assert_eq!(ask(&args(admin.clone(), "/ready")).unwrap().1, 200);
        assert_eq!(ask(&args(admin.clone(), "/elsewhere")).unwrap().1, 404);
    }

    #[tokio::test]
    async fn given_a_port_where_nobody_listens_when_asked_then_unreachable() {
        let taken = tokio::net::TcpSocket::new_v4().unwrap();
        taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let admin = taken.local_addr().unwrap().to_string();
        let asked = tokio::task::spawn_blocking(move || ask(&args(admin, "/ready"))).await.unwrap();
        let (line, code) = asked.unwrap_err();
        assert_eq!(code, UNREACHABLE);
        assert!(line.ends_with("/ready: refused"), "{line}");
    }

    #[test]
    fn given_no_address_when_asked_then_usage() {
        assert_eq!(ask(&args("nowhere:port".to_owned(), "/ready")).unwrap_err().1, 2);
    }
}
