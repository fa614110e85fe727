//! The stored format: what a file of the data folder is made of. In: changes and objects. Out: bytes, and back.
//!
//! A file is a row of frames. A frame is four marks, the length and the checksum of what follows, and that: a head, a batch of
//! entries, a table or an end. A batch is what one commit wrote, so a commit is there whole or not at all.
//!
//! Must stay true: no bytes make reading panic, loop, or take memory out of proportion to them; what was written before a flaw is read
//! as it was written. The first mark occurs in no UTF-8 text, so an object cannot pretend to be a frame.
//! Whoever changes what is written here raises [`FORMAT`] and teaches `folder` to bring older folders up to it.

use super::super::{Facts, Key, Pairs, Revision, Stored, Table};
use std::sync::Arc;

/// Version of the format, in the head of each file and in the folder's `about.json`.
pub const FORMAT: u32 = 1;

const MARKS: [u8; 4] = [0xff, b'M', b'D', 0x01];
/// Marks, length, checksum.
pub const PREFIX: usize = 12;

/// What a frame says.
#[derive(Clone, Debug)]
pub enum Frame {
    /// Opens a file: everything up to `after` is in the files before it, and what these hold beyond was never acknowledged.
    Head { format: u32, after: Revision },
    /// What happened after `after`, in order.
    Batch { after: Revision, entries: Vec<Entry> },
    /// Of a snapshot: the entries that follow are of this table, which is whole up to `upto`; its history begins after `compacted`.
    Table { table: Table, compacted: Revision, upto: Revision },
    /// Nothing follows: the file was closed with the store at this revision.
    End { revision: Revision },
}

/// One object in one state.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it belongs.
    pub table: Table,
    /// What became of it.
    pub what: What,
    /// Its state; of one that is gone, the last.
    pub object: Stored,
}

/// What an entry says of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was so when the history of its table begins.
    Was,
    /// It was written.
    Put,
    /// It is gone.
    Gone,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The file ends within a frame.
    #[error("it ends within a frame")]
    Cut,
    /// No frame begins here.
    #[error("no frame begins here")]
    Marks,
    /// What is there is not what was written.
    #[error("the checksum does not match")]
    Checksum,
    /// It was written like this, and not by this version.
    #[error("the frame cannot be understood")]
    Content,
}

/// A flaw in the middle: what follows it was written later, so what is lost had been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged at byte {offset}: {flaw}")]
pub struct Damage {
    /// Where.
    pub offset: u64,
    /// What is wrong.
    pub flaw: Flaw,
}

/// What a file holds.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// Its frames and where each begins.
    pub frames: Vec<(u64, Frame)>,
    /// Where an unfinished write begins, if there is one at the end.
    pub torn: Option<u64>,
}

/// Reads a whole file. A flaw with nothing after it is an unfinished write, which nobody was told of.
pub fn decode(bytes: &[u8]) -> Result<Decoded, Damage> {
    let mut decoded = Decoded::default();
    for next in Scan::new(bytes) {
        match next {
            Ok((at, frame)) => decoded.frames.push((at as u64, frame)),
            Err((at, flaw)) => {
                if flaw == Flaw::Content || is_followed(bytes.get(at + 1..).unwrap_or_default()) {
                    return Err(Damage { offset: at as u64, flaw });
                }
                decoded.torn = Some(at as u64);
            }
        }
    }
    Ok(decoded)
}

/// Walks over the frames of a file, up to the first flaw.
pub struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    /// From the beginning.
    pub fn new(bytes: &'a [u8]) -> Scan<'a> {
        Scan { bytes, at: 0 }
    }
}

/// Each frame and where it begins. After a flaw there is nothing more.
impl Iterator for Scan<'_> {
    type Item = Result<(usize, Frame), (usize, Flaw)>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let rest = self.bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let read = payload(rest).and_then(|(payload, used)| Ok((parse(payload).ok_or(Flaw::Content)?, used)));
        match read {
            Ok((frame, used)) => {
                self.at += used;
                Some(Ok((at, frame)))
            }
            Err(flaw) => {
                self.at = self.bytes.len();
                Some(Err((at, flaw)))
            }
        }
    }
}

/// Whether a whole frame begins anywhere in these bytes. Commits are made one after another, so what comes before one was finished.
pub fn is_followed(bytes: &[u8]) -> bool {
    // Marks that lead nowhere are looked into for so long only: who writes that many is up to no good, and losing nothing comes first.
    let mut effort = bytes.len().saturating_mul(16).max(1 << 20);
    let mut from = 0;
    while let Some(found) = bytes.get(from..).and_then(|rest| rest.iter().position(|b| *b == MARKS[0])) {
        let at = from + found;
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.starts_with(&MARKS) {
            match payload(rest) {
                Ok(_) => return true,
                Err(Flaw::Checksum) => {
                    let length = rest.get(4..8).and_then(|l| l.try_into().ok()).map_or(0, u32::from_le_bytes);
                    let Some(left) = effort.checked_sub(length as usize) else { return true };
                    effort = left;
                }
                Err(_) => {}
            }
        }
        from = at + 1;
    }
    false
}

/// The length of the payload that a prefix announces.
pub fn announced(prefix: &[u8; PREFIX]) -> Result<usize, Flaw> {
    let [a, b, c, d, l0, l1, l2, l3, ..] = *prefix;
    if [a, b, c, d] != MARKS {
        return Err(Flaw::Marks);
    }
    Ok(u32::from_le_bytes([l0, l1, l2, l3]) as usize)
}

/// The payload of the frame that begins here, if it is what was written, and the length of the whole.
pub fn payload(bytes: &[u8]) -> Result<(&[u8], usize), Flaw> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        let begins = MARKS.starts_with(bytes.get(..bytes.len().min(4)).unwrap_or_default());
        return Err(if begins { Flaw::Cut } else { Flaw::Marks });
    };
    let length = announced(prefix)?;
    let payload = rest.get(..length).ok_or(Flaw::Cut)?;
    let [.., c0, c1, c2, c3] = *prefix;
    if checksum(length, payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(Flaw::Checksum);
    }
    Ok((payload, PREFIX + length))
}

/// What a payload says; none if it is not of this format.
pub fn parse(payload: &[u8]) -> Option<Frame> {
    let mut input = Input(payload);
    let frame = match input.byte()? {
        b'H' => Frame::Head { format: u32::try_from(input.number()?).ok()?, after: input.number()? },
        b'B' => {
            let after = input.number()?;
            let n_entries = input.count()?;
            let mut entries = Vec::with_capacity(n_entries);
            for _ in 0..n_entries {
                entries.push(input.entry()?);
            }
            Frame::Batch { after, entries }
        }
        b'T' => {
            Frame::Table { table: input.text()?.into(), compacted: input.number()?, upto: input.number()? }
        }
        b'E' => Frame::End { revision: input.number()? },
        _ => return None,
    };
    input.0.is_empty().then_some(frame)
}

/// Adds the head of a file.
pub fn add_head(out: &mut Vec<u8>, after: Revision) {
    add_frame(out, |out| {
        out.push(b'H');
        add_number(out, u64::from(FORMAT));
        add_number(out, after);
    });
}

/// Adds a batch.
pub fn add_batch<'a>(
    out: &mut Vec<u8>,
    after: Revision,
    entries: impl ExactSizeIterator<Item = (&'a Table, What, &'a Stored)>,
) {
    add_frame(out, |out| {
        out.push(b'B');
        add_number(out, after);
        add_number(out, entries.len() as u64);
        for (table, what, object) in entries {
            add_entry(out, table, what, object);
        }
    });
}

/// Adds the beginning of a table.
pub fn add_table(out: &mut Vec<u8>, table: &str, compacted: Revision, upto: Revision) {
    add_frame(out, |out| {
        out.push(b'T');
        add_text(out, table);
        add_number(out, compacted);
        add_number(out, upto);
    });
}

/// Adds the end of a file.
pub fn add_end(out: &mut Vec<u8>, revision: Revision) {
    add_frame(out, |out| {
        out.push(b'E');
        add_number(out, revision);
    });
}

fn add_frame(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&MARKS);
    out.extend_from_slice(&[0; PREFIX - MARKS.len()]);
    fill(out);
    let length = out.len() - start - PREFIX;
    let sum = checksum(length, &out[start + PREFIX..]);
    // Batches are cut at a few megabytes and an object is at most a few more, so the length has room.
    out[start + 4..start + 8].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 8..start + PREFIX].copy_from_slice(&sum.to_le_bytes());
}

fn add_entry(out: &mut Vec<u8>, table: &str, what: What, object: &Stored) {
    let facts = &*object.facts;
    let kind = match what {
        What::Was => 0,
        What::Put => 1,
        What::Gone => 2,
    };
    out.push(kind | if facts.terminating { 0x10 } else { 0 });
    add_number(out, object.revision);
    for text in [table, &object.key.namespace, &object.key.name, &facts.uid] {
        add_text(out, text);
    }
    for pairs in [&facts.labels, &facts.fields] {
        add_number(out, pairs.len() as u64);
        for (name, value) in pairs {
            add_text(out, name);
            add_text(out, value);
        }
    }
    add_number(out, facts.owners.len() as u64);
    for owner in &facts.owners {
        add_text(out, owner);
    }
    add_text(out, &object.text);
}

fn add_text(out: &mut Vec<u8>, text: &str) {
    add_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn add_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What is left to read of a payload.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number of things that take at least a byte each, so that none is believed that cannot be true.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|n| *n <= self.0.len())
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn pairs(&mut self) -> Option<Pairs> {
        (0..self.count()?).map(|_| Some((self.text()?.to_string().into(), self.text()?.into()))).collect()
    }

    fn entry(&mut self) -> Option<Entry> {
        let flags = self.byte()?;
        let what = match flags & 0x0f {
            0 => What::Was,
            1 => What::Put,
            2 => What::Gone,
            _ => return None,
        };
        if flags & 0xe0 != 0 {
            return None;
        }
        let revision = self.number()?;
        let table = self.text()?.into();
        let key = Key::new(self.text()?, self.text()?);
        let facts = Facts {
            uid: self.text()?.into(),
            labels: self.pairs()?,
            fields: self.pairs()?,
            owners: (0..self.count()?).map(|_| self.text().map(Arc::from)).collect::<Option<_>>()?,
            terminating: flags & 0x10 != 0,
            record: None,
        };
        let object = Stored { key, revision, text: self.text()?.into(), facts: Arc::new(facts) };
        Some(Entry { table, what, object })
    }
}

/// CRC-32C of the length and the payload, eight bytes at a time.
fn checksum(length: usize, payload: &[u8]) -> u32 {
    let sum = extend(u32::MAX, &(length as u32).to_le_bytes());
    !extend(sum, payload)
}

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut sum = i as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][i] = sum;
        i += 1;
    }
    let mut t = 1;
    while t < 8 {
        let mut i = 0;
        while i < 256 {
            let before = tables[t - 1][i];
            tables[t][i] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            i += 1;
        }
        t += 1;
    }
    tables
}

fn extend(mut sum: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for chunk in eights {
        let low = (u64::from_le_bytes(*chunk) ^ u64::from(sum)).to_le_bytes();
        sum = 0;
        for (i, byte) in low.iter().enumerate() {
            sum ^= TABLES[7 - i][usize::from(*byte)];
        }
    }
    for byte in rest {
        sum = (sum >> 8) ^ TABLES[0][usize::from(sum as u8 ^ byte)];
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(name: &str, revision: Revision, text: &str) -> Stored {
        let facts = Facts {
            uid: format!("uid-{name}").into(),
            labels: [("app".into(), name.into())].into(),
            fields: [("spec.nodeName".into(), "n".into())].into(),
            owners: vec!["owner".into()],
            terminating: revision.is_multiple_of(2),
            record: None,
        };
        Stored { key: Key::new("ns", name), revision, text: text.into(), facts: facts.into() }
    }

    /// A log of batches of these sizes, and where each frame ends.
    fn log(sizes: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        add_head(&mut bytes, 1);
        ends.push(bytes.len());
        let (table, mut revision): (Table, _) = ("pods".into(), 1);
        for size in sizes {
            let after = revision;
            let objects: Vec<Stored> = (0..*size)
                .map(|i| {
                    revision += 1;
                    object(&format!("o{i}"), revision, &"{\"x\":1}".repeat(i * 9))
                })
                .collect();
            add_batch(&mut bytes, after, objects.iter().map(|o| (&table, What::Put, o)));
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn shown(decoded: &Decoded) -> Vec<String> {
        decoded.frames.iter().map(|(_, frame)| format!("{frame:?}")).collect()
    }

    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(!extend(u32::MAX, b"123456789"), 0xe306_9283);
        let long: Vec<u8> = (0..=255).collect();
        let slow = long.iter().fold(u32::MAX, |sum, b| extend(sum, &[*b]));
        assert_eq!(extend(u32::MAX, &long), slow);
    }

    #[test]
    fn there_and_back_is_the_identity() {
        let mut bytes = Vec::new();
        add_head(&mut bytes, 7);
        add_table(&mut bytes, "pods", 3, u64::MAX);
        let (table, made) = ("pods".into(), object("a", 4, "{\"ä\":\"\u{1f600}\"}"));
        for what in [What::Was, What::Put, What::Gone] {
            add_batch(&mut bytes, 3, [(&table, what, &made)].into_iter());
        }
        add_end(&mut bytes, 9);
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.torn, None);
        let entry = |what| Entry { table: table.clone(), what, object: made.clone() };
        let batch = |what| Frame::Batch { after: 3, entries: vec![entry(what)] };
        let expected = [
            Frame::Head { format: FORMAT, after: 7 },
            Frame::Table { table: table.clone(), compacted: 3, upto: u64::MAX },
            batch(What::Was),
            batch(What::Put),
            batch(What::Gone),
            Frame::End { revision: 9 },
        ];
        assert_eq!(shown(&decoded), expected.map(|frame| format!("{frame:?}")));
    }

    #[test]
    fn a_tail_of_marks_costs_little() {
        let (mut bytes, ends) = log(&[1]);
        for _ in 0..100_000 {
            bytes.extend_from_slice(&MARKS);
            bytes.extend_from_slice(&100_000u32.to_le_bytes());
        }
        // Nobody can say what this is, so it is not taken for an unfinished write.
        assert_eq!(decode(&bytes).unwrap_err().offset, ends[1] as u64);
    }

    proptest! {
        #[test]
        fn any_prefix_reads_as_a_prefix(sizes in proptest::collection::vec(1usize..5, 0..6), cut in 0.0..1.0f64) {
            let (bytes, ends) = log(&sizes);
            let whole = shown(&decode(&bytes).unwrap());
            let cut = (bytes.len() as f64 * cut) as usize;
            let decoded = decode(&bytes[..cut]).unwrap();
            let n_whole = ends.iter().filter(|end| **end <= cut).count();
            prop_assert_eq!(shown(&decoded), &whole[..n_whole]);
            let begins = n_whole.checked_sub(1).map_or(0, |last| ends[last]);
            prop_assert_eq!(decoded.torn, (begins != cut).then_some(begins as u64));
        }

        #[test]
        fn a_flipped_byte_loses_nothing_before_it(
            sizes in proptest::collection::vec(1usize..5, 1..6), at in 0.0..1.0f64, flip in 1u8..=255,
        ) {
            let (mut bytes, ends) = log(&sizes);
            let whole = shown(&decode(&bytes).unwrap());
            let at = (bytes.len() as f64 * at) as usize;
            bytes[at] ^= flip;
            let hit = ends.iter().filter(|end| **end <= at).count();
            let begins = hit.checked_sub(1).map_or(0, |last| ends[last]) as u64;
            match decode(&bytes) {
                // In the last frame it cannot be told from an unfinished write.
                Ok(decoded) => {
                    prop_assert_eq!(hit, ends.len() - 1);
                    prop_assert_eq!(decoded.torn, Some(begins));
                    prop_assert_eq!(shown(&decoded), &whole[..hit]);
                }
                Err(damage) => {
                    prop_assert!(hit < ends.len() - 1);
                    prop_assert_eq!(damage.offset, begins);
                }
            }
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0usize..5) {
            let _ = decode(&bytes);
            // Behind a valid checksum, too.
            let mut framed = Vec::new();
            add_frame(&mut framed, |out| {
                out.extend_from_slice(&b"HBTEx"[kind..=kind]);
                out.extend_from_slice(&bytes);
            });
            let _ = decode(&framed);
        }
    }
}
