//! Behaviour as tables, and laws about hostile input.

mod age;
mod builtin;
mod hostile;
mod jsonpath;
mod printer_columns;
mod table;

use jiff::Timestamp;

/// The moment at which all tests look at objects. The recorded rows hold for it too.
fn now() -> Timestamp {
    "2026-11-15T10:00:00Z".parse().expect("this is a timestamp")
}
