use crate::affinity::{self, Affinity, Scope};
use crate::balance::{self, Balancer, Site};
use crate::config::{Located, Outline, Policy, Problems, Rows, Section, unknown};
use crate::health::active::{self, ProbeKind};
use crate::health::available::{self, AvailablePolicy};
use crate::health::passive::{self, PassivePolicy};

/// Every policy that a configuration can name. Users of the library add their own rows.
#[derive(Clone)]
pub struct Registry {
    balancers: Vec<balance::Entry>,
    available: Vec<available::Entry>,
    probes: Vec<active::Entry>,
    detectors: Vec<passive::Entry>,
    affinities: Vec<affinity::Entry>,
}

impl Registry {
    /// The policies that come with the crate.
    pub fn builtin() -> Self {
        Registry {
            balancers: balance::BUILTIN.to_vec(),
            available: available::BUILTIN.to_vec(),
            probes: active::BUILTIN.to_vec(),
            detectors: passive::BUILTIN.to_vec(),
            affinities: affinity::BUILTIN.to_vec(),
        }
    }

    /// Adds a balancing policy; one of the same name is replaced.
    pub fn with_balancer(
        mut self,
        name: &'static str,
        build: fn(&mut Section<'_>, &Site) -> Box<dyn Balancer>,
    ) -> Self {
        self.balancers.retain(|entry| entry.name != name);
        self.balancers.push(balance::Entry { name, build });
        self
    }

    /// Adds a passive detector; one of the same name is replaced.
    pub fn with_detector(mut self, entry: passive::Entry) -> Self {
        self.detectors.retain(|known| known.name != entry.name);
        self.detectors.push(entry);
        self
    }

    /// Adds a policy of session affinity; one of the same name is replaced.
    pub fn with_affinity(
        mut self,
        name: &'static str,
        build: fn(&mut Section<'_>, &Scope<'_>) -> Box<dyn Affinity>,
    ) -> Self {
        self.affinities.retain(|entry| entry.name != name);
        self.affinities.push(affinity::Entry { name, build });
        self
    }

    /// A JSON Schema, draft 2020-12, of the files that can be written with these policies.
    pub fn schema(&self) -> serde_json::Value {
        Outline::of_file().schema(&|slot| match slot {
            "load_balancing" => rows(&self.balancers, |row| {
                (row.name, Outline::of_section(|params| (row.build)(params, &Site::default())))
            }),
            "session_affinity" => rows(&self.affinities, |row| {
                (
                    row.name,
                    Outline::of_section(|params| {
                        let key_name = Located { value: String::new(), at: params.at().clone() };
                        (row.build)(params, &Scope { key_name: &key_name, ids: &[] })
                    }),
                )
            }),
            "available" => rows(&self.available, |row| (row.name, Outline::of_section(row.build))),
            "detectors" => rows(&self.detectors, |row| (row.name, Outline::of_section(row.build))),
            _ => rows(&self.probes, |row| (row.name, Outline::of_section(row.build))),
        })
    }

    pub(super) fn balancer(&self, policy: &Policy, site: &Site, problems: &mut Problems) -> Option<Box<dyn Balancer>> {
        let names: Vec<_> = self.balancers.iter().map(|entry| entry.name).collect();
        let found = find("load balancing policy", policy, &names, problems)?;
        let build = self.balancers[found].build;
        Some(built(policy, problems, |params| build(params, site)))
    }

    pub(super) fn affinity(
        &self,
        policy: &Policy,
        scope: &Scope<'_>,
        problems: &mut Problems,
    ) -> Option<Box<dyn Affinity>> {
        let names: Vec<_> = self.affinities.iter().map(|entry| entry.name).collect();
        let found = find("session affinity policy", policy, &names, problems)?;
        let build = self.affinities[found].build;
        Some(built(policy, problems, |params| build(params, scope)))
    }

    pub(super) fn available(&self, policy: &Policy, problems: &mut Problems) -> Option<Box<dyn AvailablePolicy>> {
        let names: Vec<_> = self.available.iter().map(|entry| entry.name).collect();
        let found = find("available-destinations policy", policy, &names, problems)?;
        Some(built(policy, problems, self.available[found].build))
    }

    pub(super) fn detector(&self, policy: &Policy, problems: &mut Problems) -> Option<Box<dyn PassivePolicy>> {
        let names: Vec<_> = self.detectors.iter().map(|entry| entry.name).collect();
        let found = find("passive detector", policy, &names, problems)?;
        Some(built(policy, problems, self.detectors[found].build))
    }

    pub(super) fn probe(&self, kind: &Policy, problems: &mut Problems) -> Option<Box<dyn ProbeKind>> {
        let names: Vec<_> = self.probes.iter().map(|entry| entry.name).collect();
        let found = find("type of active check", kind, &names, problems)?;
        Some(built(kind, problems, self.probes[found].build))
    }
}

fn rows<T>(table: &[T], row: impl Fn(&T) -> (&'static str, Outline)) -> Rows {
    table.iter().map(row).collect()
}

fn built<T>(policy: &Policy, problems: &mut Problems, build: impl FnOnce(&mut Section<'_>) -> T) -> T {
    let mut params = policy.params(problems);
    let policy = build(&mut params);
    params.finish();
    policy
}

fn find(what: &str, policy: &Policy, names: &[&str], problems: &mut Problems) -> Option<usize> {
    let name = &policy.name.value;
    let found = names.iter().position(|candidate| candidate == name);
    if found.is_none() {
        problems.push(&policy.name.at, unknown(what, name, names));
    }
    found
}
