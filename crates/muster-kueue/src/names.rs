//! What workloads are called: as Kueue calls them, so that a cluster that moves keeps its workloads.

use std::fmt::Write;

/// Names are values of labels too, so they are no longer than those may be.
const MOST: usize = 63;
const HASH: usize = 5;

/// The name of the workload of an owner: its kind and name, and a few letters that tell it from one of the same name before.
pub fn workload(group: &str, kind: &str, name: &str, uid: &str) -> String {
    let mut prefix = format!("{}-{name}", kind.to_lowercase());
    let most = MOST - 1 - HASH;
    if prefix.len() > most {
        let end = (0..=most).rev().find(|i| prefix.is_char_boundary(*i)).unwrap_or(0);
        prefix.truncate(end);
    }
    let hash = hex(&format!("{kind}\n{group}\n{name}\n{uid}"));
    format!("{prefix}-{}", &hash[..HASH])
}

fn hex(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// A short name for what pods of one role have in common.
pub fn role(shape: &serde_json::Value) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, shape.to_string().as_bytes());
    digest.as_ref().iter().take(4).fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_kueue_makes() {
        // sha1 of "Job\nbatch\nsample-job\nuid-1" begins with these letters.
        let name = workload("batch", "Job", "sample-job", "uid-1");
        assert_eq!(name, format!("job-sample-job-{}", &hex("Job\nbatch\nsample-job\nuid-1")[..5]));
        assert_eq!(hex("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_ne!(name, workload("batch", "Job", "sample-job", "uid-2"));
        let long = workload("batch", "Job", &"é".repeat(100), "u");
        assert!(long.len() <= MOST, "{long}");
    }
}
