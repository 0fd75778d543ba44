//! The address as written: a literal IP is taken as it is, a name is looked up once. Of several addresses the first IPv4
//! one is taken (a name such as `localhost` often has both kinds, and servers listen on IPv4 more often).

use super::{Discovery, Names};
use crate::config::HttpAddress;
use crate::model::{Endpoint, Scheme};
use std::net::{IpAddr, SocketAddr};

pub struct Fixed;

impl Discovery for Fixed {
    fn resolve(&self, address: &HttpAddress, names: &dyn Names) -> Result<Vec<Endpoint>, String> {
        let socket = match address.host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, address.port),
            Err(_) => lookup(&address.host, address.port, names)?,
        };
        Ok(vec![Endpoint {
            scheme: if address.tls { Scheme::Https } else { Scheme::Http },
            host: address.host.clone(),
            port: address.port,
            path: address.path.trim_end_matches('/').to_string(),
            socket,
        }])
    }
}

fn lookup(host: &str, port: u16, names: &dyn Names) -> Result<SocketAddr, String> {
    let found = names.lookup(host, port).map_err(|error| format!("cannot resolve host {host:?}: {error}"))?;
    let v4 = found.iter().find(|socket| socket.is_ipv4());
    v4.or(found.first()).copied().ok_or_else(|| format!("host {host:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    struct Scripted(&'static [&'static str]);

    impl Names for Scripted {
        fn lookup(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            let ips = self.0.iter().map(|ip| ip.parse::<IpAddr>().expect("a test's address"));
            Ok(ips.map(|ip| SocketAddr::new(ip, port)).collect())
        }
    }

    #[test]
    fn given_a_name_with_both_kinds_of_address_when_resolved_then_ipv4() {
        let address = HttpAddress::parse("http://localhost:5301/a/").expect("valid");
        let found = Fixed.resolve(&address, &Scripted(&["::1", "127.0.0.1"])).expect("found");
        assert_eq!(found[0].socket, ([127, 0, 0, 1], 5301).into());
        assert_eq!(found[0].path, "/a");
        assert_eq!(found[0].authority(), "localhost:5301");
    }

    #[test]
    fn given_literal_addresses_when_resolved_then_no_name_is_asked_for() {
        for (url, socket) in [("https://[2001:db8::1]", "[2001:db8::1]:443"), ("http://10.0.0.1", "10.0.0.1:80")] {
            let address = HttpAddress::parse(url).expect("valid");
            let found = Fixed.resolve(&address, &Scripted(&[])).expect("literal");
            assert_eq!(found[0].socket, socket.parse().expect("a test's address"));
        }
    }

    #[test]
    fn given_a_name_without_address_when_resolved_then_it_says_so() {
        let address = HttpAddress::parse("http://nowhere").expect("valid");
        let error = Fixed.resolve(&address, &Scripted(&[])).expect_err("none");
        assert_eq!(error, "host \"nowhere\" has no address");
    }
}
