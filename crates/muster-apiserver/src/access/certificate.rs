//! Who a client certificate is about: its common name is the user, its organizations are the groups, as in Kubernetes.
//!
//! In: a certificate in DER, already found genuine by TLS. Out: a user. Total: bytes that make no sense give none. Only as much of
//! X.509 is read as leads to the subject's name.

use super::User;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const VERSION: u8 = 0xa0;
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// The user that a certificate names.
pub fn user(der: &[u8]) -> Option<User> {
    let mut certificate = Reader(Reader(der).expect(SEQUENCE)?);
    let mut signed = Reader(certificate.expect(SEQUENCE)?);
    if signed.0.first() == Some(&VERSION) {
        signed.next()?;
    }
    // Serial number, algorithm, issuer and validity come before the subject.
    for _ in 0..4 {
        signed.next()?;
    }
    let mut names = Reader(signed.expect(SEQUENCE)?);
    let (mut name, mut groups) = (None, Vec::new());
    while !names.0.is_empty() {
        let mut set = Reader(names.expect(SET)?);
        while !set.0.is_empty() {
            let mut pair = Reader(set.expect(SEQUENCE)?);
            let id = pair.expect(OID)?;
            let (_, value) = pair.next()?;
            let Ok(text) = std::str::from_utf8(value) else { continue };
            if id == COMMON_NAME {
                name = Some(text.to_string());
            } else if id == ORGANIZATION {
                groups.push(text.to_string());
            }
        }
    }
    name.filter(|n| !n.is_empty()).map(|name| User::known(name, groups))
}

/// Reads values one after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next value's tag and content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let n_bytes = usize::from(first & 0x7f);
            if n_bytes == 0 || n_bytes > 4 {
                return None;
            }
            let (bytes, rest) = rest.split_at_checked(n_bytes)?;
            (bytes.iter().fold(0usize, |n, b| n << 8 | usize::from(*b)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The next value's content, if it has that tag.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(name: Option<&str>, organization: Option<&str>) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_and_groups() {
        let found = user(&certificate(Some("alice"), Some("team-a"))).unwrap();
        assert_eq!(
            (found.name.as_str(), found.groups),
            ("alice", vec!["team-a".to_string(), "system:authenticated".into()])
        );
        assert_eq!(user(&certificate(None, Some("team-a"))), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..400) {
            let _ = user(&bytes);
            let whole = certificate(Some("alice"), None);
            let _ = user(&whole[..cut.min(whole.len())]);
        }
    }
}
