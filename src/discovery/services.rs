//! `discovery: { type: services }`: a logical host name, looked for in the configuration's own `services` list (name →
//! scheme → addresses), as .NET's service discovery does. A name that is not there is taken as written.

use super::{Discovery, Fixed, Names};
use crate::config::HttpAddress;
use crate::model::Endpoint;
use std::collections::HashMap;

/// (name, whether it is https) → `host:port`, in the order written.
#[derive(Default)]
pub struct Services(pub HashMap<(String, bool), Vec<String>>);

impl Discovery for Services {
    fn resolve(&self, address: &HttpAddress, names: &dyn Names) -> Result<Vec<Endpoint>, String> {
        let Some(authorities) = self.0.get(&(address.host.clone(), address.tls)) else {
            return Fixed.resolve(address, names);
        };
        let mut endpoints = Vec::new();
        for authority in authorities {
            let scheme = if address.tls { "https" } else { "http" };
            let found = HttpAddress::parse(&format!("{scheme}://{authority}"))
                .map_err(|error| format!("service {:?}: {error}", address.host))?;
            let found = HttpAddress { path: address.path.clone(), ..found };
            endpoints.extend(Fixed.resolve(&found, names)?);
        }
        if endpoints.is_empty() {
            return Err(format!("service {:?} has no address", address.host));
        }
        Ok(endpoints)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SystemNames;
    use super::*;

    fn ordering() -> Services {
        let authorities = vec!["127.0.0.1:5302".to_string(), "127.0.0.1:5303".to_string()];
        Services([(("ordering".to_string(), false), authorities)].into())
    }

    #[test]
    fn given_a_listed_name_when_resolved_then_each_address_with_the_written_path() {
        let address = HttpAddress::parse("http://ordering/v2").expect("valid");
        let found = ordering().resolve(&address, &SystemNames).expect("listed");
        let shown: Vec<String> = found.iter().map(Endpoint::to_string).collect();
        assert_eq!(shown, ["http://127.0.0.1:5302/v2", "http://127.0.0.1:5303/v2"]);
    }

    #[test]
    fn given_a_name_that_is_not_listed_when_resolved_then_the_address_as_written() {
        let address = HttpAddress::parse("http://127.0.0.1:9").expect("valid");
        let found = ordering().resolve(&address, &SystemNames).expect("literal");
        assert_eq!(found[0].socket, ([127, 0, 0, 1], 9).into());
    }
}
