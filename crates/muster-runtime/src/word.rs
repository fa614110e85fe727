//! Texts that are one of a few words nearly always: phases, policies, operators, types and statuses of conditions.
//!
//! In: a text. Out: a [`Word`], which is read like one. The words of Kubernetes are kept as their number, any other as it is: there are hundreds of
//! thousands of objects with a dozen such words each, and a text of its own takes 40 bytes and an allocation.
//!
//! What stays true: a word reads as the text that it was made of, and two words are equal when their texts are.

use std::fmt;
use std::ops::Deref;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// By length, so that a text is compared with the few of its own length only. The empty one comes first.
const KNOWN: [&str; 37] = [
    "",
    "TCP",
    "UDP",
    "SCTP",
    "True",
    "Equal",
    "False",
    "Never",
    "Ready",
    "Always",
    "Exists",
    "Failed",
    "Pending",
    "Running",
    "Unknown",
    "volcano",
    "PodBound",
    "Burstable",
    "NoExecute",
    "OnFailure",
    "Succeeded",
    "BestEffort",
    "Guaranteed",
    "NoSchedule",
    "Initialized",
    "PodScheduled",
    "Unschedulable",
    "kai-scheduler",
    "nvidia.com/gpu",
    "ContainersReady",
    "DisruptionTarget",
    "PreferNoSchedule",
    "muster-scheduler",
    "default-scheduler",
    "PodReadyToStartContainers",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];
/// Where the words of each length begin; the last is where all end.
const BEGINS: [usize; LONGEST + 2] = begins();
const LONGEST: usize = KNOWN[KNOWN.len() - 1].len();

const fn begins() -> [usize; LONGEST + 2] {
    let mut begins = [KNOWN.len(); LONGEST + 2];
    let mut at = KNOWN.len();
    while at > 0 {
        at -= 1;
        // Shorter lengths that have no words begin here too.
        let mut length = 0;
        while length <= KNOWN[at].len() {
            begins[length] = at;
            length += 1;
        }
    }
    begins
}

/// A text that is one of a few words nearly always.
#[derive(Clone, PartialEq, Eq)]
pub struct Word(Kept);

/// One way only for each text, so that equal words are equal here.
#[derive(Clone, PartialEq, Eq)]
enum Kept {
    Known(u8),
    Other(Box<str>),
}

fn known(text: &str) -> Option<Kept> {
    let (from, to) = (*BEGINS.get(text.len())?, *BEGINS.get(text.len() + 1)?);
    let found = KNOWN.get(from..to)?.iter().position(|word| *word == text)?;
    u8::try_from(from + found).ok().map(Kept::Known)
}

impl Word {
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kept::Known(at) => KNOWN.get(usize::from(*at)).copied().unwrap_or_default(),
            Kept::Other(text) => text,
        }
    }

    pub fn is_in(&self, texts: &[String]) -> bool {
        texts.iter().any(|text| self == text)
    }
}

impl Default for Word {
    fn default() -> Self {
        // The empty word.
        Word(Kept::Known(0))
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Word(known(text).unwrap_or_else(|| Kept::Other(text.into())))
    }
}

impl From<&String> for Word {
    fn from(text: &String) -> Self {
        Word::from(text.as_str())
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        Word(known(&text).unwrap_or_else(|| Kept::Other(text.into())))
    }
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        word.as_str().to_owned()
    }
}

impl Deref for Word {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Word {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Word {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<Word> for String {
    fn eq(&self, other: &Word) -> bool {
        self == other.as_str()
    }
}

impl PartialEq<Word> for &str {
    fn eq(&self, other: &Word) -> bool {
        *self == other.as_str()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(text.into())
            }
            fn visit_string<E>(self, text: String) -> Result<Word, E> {
                Ok(text.into())
            }
        }
        from.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_words_are_in_order_and_found() {
        assert!(KNOWN.is_sorted_by(|a, b| (a.len(), a) < (b.len(), b)));
        for text in KNOWN {
            assert!(matches!(Word::from(text).0, Kept::Known(_)), "{text:?}");
        }
        assert_eq!(Word::default(), "");
        assert_eq!(size_of::<Word>(), size_of::<Box<str>>());
    }

    proptest! {
        #[test]
        fn a_word_reads_as_its_text(
            text in prop_oneof![any::<String>(), prop::sample::select(KNOWN.to_vec()).prop_map(str::to_owned)],
        ) {
            let word = Word::from(text.as_str());
            prop_assert_eq!(&word, &text);
            prop_assert_eq!(&word, &Word::from(text.clone()));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::to_string(&word).unwrap(), json.clone());
            prop_assert_eq!(serde_json::from_str::<Word>(&json).unwrap(), word);
        }
    }
}
