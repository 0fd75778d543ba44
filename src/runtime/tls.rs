//! Reading certificates, keys and authorities, and judging them before Pingora sees them: its own loading panics on a
//! bad file, ours is a fault with a place.

use crate::config::{Certificate, Located, Problems, read_file};
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::PathBuf;
use std::sync::Arc;

/// A certificate of a listener.
#[derive(Debug, Clone)]
pub struct Served {
    /// The DNS names of the leaf in lower case; `*.` may begin them.
    pub names: Vec<String>,
    pub key: Arc<CertifiedKey>,
}

/// One that has no name and is not the first could never be asked for: a fault.
pub fn served(written: &[Certificate], problems: &mut Problems) -> Vec<Served> {
    let mut served = Vec::new();
    for (position, files) in written.iter().enumerate() {
        let Some(key) = certified_key(files, problems) else { continue };
        let names = key.cert.first().map_or_else(Vec::new, names);
        if names.is_empty() && position > 0 {
            let path = files.cert.value.display();
            problems
                .push(&files.cert.at, format!("{path} names no host, so that nobody would get it; only the first may"));
        }
        served.push(Served { names, key });
    }
    served
}

fn names(leaf: &CertificateDer<'_>) -> Vec<String> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return Vec::new() };
    let Ok(Some(alternatives)) = leaf.subject_alternative_name() else { return Vec::new() };
    let dns = alternatives.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    dns.collect()
}

/// A chain and its key, leaf first, that belong together.
fn certified_key(files: &Certificate, problems: &mut Problems) -> Option<Arc<CertifiedKey>> {
    let chain = certificates(&files.cert, problems);
    let key = private_key(&files.key, problems);
    let (chain, key) = (chain?, key?);
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Ok(certified) => Some(Arc::new(certified)),
        Err(error) => {
            let (cert, key) = (files.cert.value.display(), files.key.value.display());
            let why =
                if matches!(error, rustls::Error::InconsistentKeys(_)) { String::new() } else { format!(": {error}") };
            problems.push(&files.key.at, format!("{key} is not the key of {cert}; they do not go together{why}"));
            None
        }
    }
}

/// The same as DER, the form in which Pingora takes a client certificate: chain, key.
pub fn client_certificate(files: &Certificate, problems: &mut Problems) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    certified_key(files, problems)?;
    let chain = certificates(&files.cert, problems)?;
    let key = private_key(&files.key, problems)?;
    let chain = chain.iter().map(|certificate| certificate.to_vec()).collect();
    Some((chain, key.secret_der().to_vec()))
}

/// Certificates of authorities that can be trusted.
pub fn authorities(file: &Located<PathBuf>, problems: &mut Problems) -> Option<Vec<Vec<u8>>> {
    let found = certificates(file, problems)?;
    for certificate in &found {
        if let Err(error) = RootCertStore::empty().add(certificate.clone()) {
            let path = file.value.display();
            problems.push(&file.at, format!("{path} holds no certificate of an authority: {error}"));
            return None;
        }
    }
    Some(found.iter().map(|certificate| certificate.to_vec()).collect())
}

fn certificates(file: &Located<PathBuf>, problems: &mut Problems) -> Option<Vec<CertificateDer<'static>>> {
    let pem = read(file, problems)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let path = file.value.display();
    match found {
        Ok(found) if found.is_empty() => {
            problems.push(&file.at, format!("{path} holds no certificate: expected PEM"));
            None
        }
        Ok(found) if !found.iter().all(is_x509) => {
            problems.push(&file.at, format!("{path} holds a certificate that is not X.509"));
            None
        }
        Ok(found) => Some(found),
        Err(error) => {
            problems.push(&file.at, format!("{path} is no PEM file of certificates: {error}"));
            None
        }
    }
}

/// Pingora parses the certificates it is given again, by this very parser, and panics on failure.
fn is_x509(der: &CertificateDer<'_>) -> bool {
    use x509_parser::prelude::{FromDer, X509Certificate};
    X509Certificate::from_der(der).is_ok()
}

fn private_key(file: &Located<PathBuf>, problems: &mut Problems) -> Option<PrivateKeyDer<'static>> {
    let pem = read(file, problems)?;
    let key = PrivateKeyDer::from_pem_slice(&pem);
    if let Err(error) = &key {
        let path = file.value.display();
        problems.push(&file.at, format!("{path} holds no private key: expected PEM ({error})"));
    }
    key.ok()
}

fn read(file: &Located<PathBuf>, problems: &mut Problems) -> Option<Vec<u8>> {
    let found = read_file(&file.value);
    if let Err(error) = &found {
        problems.push(&file.at, format!("cannot read {}: {error}", file.value.display()));
    }
    found.ok()
}
