//! Any bytes as a file of the store on disk: they are read as far as they are whole, or refused with the place of the damage.
#![no_main]

use muster_apiserver::store::disk::format::{add_end, add_head, decode, parse};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
    // What a frame holds, past the checksum that chance does not find.
    let _ = parse(bytes);
    // Between frames that are whole.
    let mut file = Vec::new();
    add_head(&mut file, 1);
    file.extend_from_slice(bytes);
    add_end(&mut file, 1);
    let _ = decode(&file);
});
