//! Who a server is to its clients: its certificate, the authority behind it, and the token. In: a data folder, or none. Out: an
//! identity that is as old as the folder, so that a kubeconfig stays valid when the server is started again.
//!
//! Must stay true: the file is its owner's only, and it is never made anew while there is one.

use crate::store::disk::write_whole;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a server shows to its clients.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Format of the file.
    version: u32,
    /// The certificate authority to trust, PEM.
    pub ca_pem: String,
    /// The server's certificate, PEM.
    pub certificate_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
    /// The bearer token.
    pub token: String,
    /// The port that it last listened on.
    #[serde(default)]
    pub port: Option<u16>,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Certificates could not be made.
    #[error("cannot make the server's certificate")]
    Certificate(#[from] rcgen::Error),
    /// The file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not as we write it.
    #[error("{}: {why}; remove it to get a new certificate and a new token", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl Identity {
    /// A new one.
    pub fn new() -> Result<Identity, rcgen::Error> {
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        ca.distinguished_name.push(DnType::CommonName, "muster-ca");
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let names = ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default.svc"];
        let mut leaf = CertificateParams::new(names.map(String::from).to_vec())?;
        leaf.distinguished_name.push(DnType::CommonName, "muster-apiserver");
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?;
        Ok(Identity {
            version: 1,
            ca_pem: issuer.pem(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            token: uuid::Uuid::new_v4().simple().to_string() + &uuid::Uuid::new_v4().simple().to_string(),
            port: None,
        })
    }

    /// The identity of a data folder, made if it has none.
    pub fn of(folder: &Path) -> Result<Identity, IdentityError> {
        let file = Identity::file(folder);
        match std::fs::read_to_string(&file) {
            Ok(text) => match serde_json::from_str::<Identity>(&text) {
                Ok(identity) if identity.version == 1 => Ok(identity),
                Ok(other) => {
                    let why = format!("version {} is not known to this program", other.version);
                    Err(IdentityError::Content { file, why })
                }
                Err(error) => Err(IdentityError::Content { file, why: error.to_string() }),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let identity = Identity::new()?;
                identity.keep(folder)?;
                Ok(identity)
            }
            Err(source) => Err(IdentityError::Io { file, source }),
        }
    }

    /// The same, on a port.
    pub fn on(self, port: u16) -> Identity {
        Identity { port: Some(port), ..self }
    }

    /// Writes it into a data folder.
    pub fn keep(&self, folder: &Path) -> Result<(), IdentityError> {
        let file = Identity::file(folder);
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        write_whole(&file, text.as_bytes()).map_err(|source| IdentityError::Io { file, source })
    }

    fn file(folder: &Path) -> PathBuf {
        folder.join("identity.json")
    }
}
