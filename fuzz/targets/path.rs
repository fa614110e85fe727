//! Any text as the path and parameters of a request.
#![no_main]

use muster_apiserver::{path, query::Query};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let _ = path::parse(path);
    let _ = Query::parse(query, "ListOptions");
});
