//! Makes keys and certificates.
//!
//! In: what there is, the names to serve, the time. Out: what there is afterwards. Must stay true: a certificate is valid
//! from an hour before it was made, so that clocks may differ a little.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_runtime::clock::{later, whole};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::plan::{AUTHORITY_LIFE, Authority, Chest, LEAF_LIFE, Leaf, Step, VERSION, plan};

/// Certificates could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("the steps to good certificates do not end")]
    Endless,
    #[error("cannot serve with the certificate")]
    Serve(#[from] rustls::Error),
    #[error("the certificate is no PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
}

/// The chest with all that is missing or old replaced; `None` when it is good as it is.
pub fn renew(chest: &Chest, names: &[String], now: Timestamp) -> Result<Option<Chest>, CertError> {
    let mut chest = chest.clone();
    let now = whole(now);
    // Forget two, make two and a leaf: a plan that goes on after that goes in circles.
    for n_steps in 0..16 {
        match plan(&chest, names, now) {
            None => return Ok((n_steps > 0).then_some(chest)),
            Some(Step::Forget { authority }) => chest.authorities.retain(|a| a.name != authority),
            Some(Step::MakeAuthority) => chest.authorities.push(authority(now)?),
            Some(Step::MakeLeaf { issuer }) => {
                let by = chest.authorities.iter().find(|a| a.name == issuer).ok_or(CertError::Endless)?;
                chest.leaf = Some(leaf(by, names, now)?);
            }
        }
        chest.version = VERSION;
    }
    Err(CertError::Endless)
}

/// The parameters of an authority are a function of its name, so that its certificate need not be parsed to sign.
fn authority_params(name: &str) -> Result<CertificateParams, CertError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn authority(now: Timestamp) -> Result<Authority, CertError> {
    let name = format!("muster-admission-ca-{}", now.as_second());
    let expires = later(now, AUTHORITY_LIFE);
    let mut params = authority_params(&name)?;
    live(&mut params, now, expires);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Authority { name, certificate, key: key.serialize_pem(), made: now, expires })
}

fn leaf(by: &Authority, names: &[String], now: Timestamp) -> Result<Leaf, CertError> {
    let expires = later(now, LEAF_LIFE).min(by.expires);
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "muster-admission");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    live(&mut params, now, expires);
    let issuer = Issuer::new(authority_params(&by.name)?, KeyPair::from_pem(&by.key)?);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Leaf {
        certificate,
        key: key.serialize_pem(),
        names: names.to_vec(),
        issuer: by.name.clone(),
        made: now,
        expires,
    })
}

fn live(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // Certificates do not reach back before 1970 here, nor beyond the year 9999.
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or(0).min(253_402_300_799);
        epoch + Duration::from_secs(seconds)
    };
    params.not_before = at(from.checked_sub(SignedDuration::from_hours(1)).unwrap_or(from));
    params.not_after = at(to);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    fn day(n: i64) -> Timestamp {
        Timestamp::from_second(n * 86_400).unwrap()
    }

    /// Whether a client that trusts the bundle takes the certificate for this name at this time.
    fn is_trusted(bundle: &str, leaf: &Leaf, name: &str, at: Timestamp) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let certificate = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().unsigned_abs()));
        verifier.verify_server_cert(&certificate, &[], &name, &[], now).is_ok()
    }

    #[test]
    fn is_trusted_for_its_names_and_its_time() {
        let names = vec!["muster-admission.muster-system.svc".to_owned(), "127.0.0.1".to_owned()];
        let chest = renew(&Chest::default(), &names, day(20_000)).unwrap().unwrap();
        let leaf = chest.leaf.clone().unwrap();
        let check = |name, at| is_trusted(&chest.bundle(), &leaf, name, at);
        assert!(check("muster-admission.muster-system.svc", day(20_000)));
        assert!(check("127.0.0.1", day(20_089)));
        assert!(!check("127.0.0.1", day(20_091)));
        assert!(!check("127.0.0.1", day(19_999)));
        assert!(!check("other.svc", day(20_000)));
        assert_eq!(renew(&chest, &names, day(20_001)).unwrap(), None);
    }

    #[test]
    fn old_and_new_are_trusted_through_a_rotation() {
        let names = vec!["localhost".to_owned()];
        let first = renew(&Chest::default(), &names, day(20_000)).unwrap().unwrap();
        let both = renew(&first, &names, day(20_000 + 3300)).unwrap().unwrap();
        assert_eq!(both.authorities.len(), 2);
        let after = renew(&both, &names, day(20_000 + 3362)).unwrap().unwrap();
        assert_ne!(after.leaf.as_ref().unwrap().issuer, both.leaf.as_ref().unwrap().issuer);
        for served in [&both, &after] {
            let leaf = served.leaf.as_ref().unwrap();
            assert!(is_trusted(&both.bundle(), leaf, "localhost", day(20_000 + 3363)));
        }
        assert!(!is_trusted(&first.bundle(), after.leaf.as_ref().unwrap(), "localhost", day(20_000 + 3363)));
    }

    #[test]
    fn survives_being_written_down() {
        let chest = renew(&Chest::default(), &["a".to_owned()], day(20_000)).unwrap().unwrap();
        let text = serde_json::to_string(&chest).unwrap();
        assert_eq!(serde_json::from_str::<Chest>(&text).unwrap(), chest);
    }
}
