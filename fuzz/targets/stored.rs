//! Any bytes as a file of the store on disk: they are read as far as they are whole, or refused with the place of the damage.
#![no_main]

use muster_apiserver::store::disk::format::decode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
});
