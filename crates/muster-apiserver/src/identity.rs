//! Who a server is to its clients: its certificate, the authority behind it, the token, and the key that it signs the tokens of service
//! accounts with. In: a data folder, or none. Out: an identity that is as old as the folder, so that a kubeconfig and the tokens of service
//! accounts stay valid when the server is started again.
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
    /// What tokens of service accounts are signed with; empty in files from before there was one.
    #[serde(default)]
    pub signing_key: String,
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
            token: secret(),
            signing_key: secret(),
            port: None,
        })
    }

    /// The identity of a data folder, made if it has none.
    pub fn of(folder: &Path) -> Result<Identity, IdentityError> {
        let file = Identity::file(folder);
        match std::fs::read_to_string(&file) {
            Ok(text) => match serde_json::from_str::<Identity>(&text) {
                Ok(mut identity) if identity.version == 1 => {
                    if identity.signing_key.is_empty() {
                        identity.signing_key = secret();
                        identity.keep(folder)?;
                    }
                    Ok(identity)
                }
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

/// 244 bits that nobody can guess, as text.
fn secret() -> String {
    uuid::Uuid::new_v4().simple().to_string() + &uuid::Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_identity_for_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("muster-identity-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        let first = Identity::of(&folder).unwrap();
        let again = Identity::of(&folder).unwrap();
        assert_eq!((&first.token, &first.signing_key), (&again.token, &again.signing_key));
        assert_ne!(first.signing_key, first.token);
        assert!(first.signing_key.len() >= 64);
        let file = Identity::file(&folder);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // A file from before there was a key gets one, and keeps it.
        let mut old: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        old.as_object_mut().unwrap().remove("signingKey");
        std::fs::write(&file, old.to_string()).unwrap();
        let mended = Identity::of(&folder).unwrap();
        assert_eq!(mended.token, first.token);
        assert!(!mended.signing_key.is_empty());
        assert_eq!(Identity::of(&folder).unwrap().signing_key, mended.signing_key);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
