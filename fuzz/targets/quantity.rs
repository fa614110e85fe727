//! Any text as a quantity: what is read is written and read again as the same value.
#![no_main]

use k8s_quantity::{Quantity, stored_text};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    let again: Quantity = quantity.to_string().parse().expect("what is written can be read");
    assert_eq!(again, quantity, "{text:?}");
    if let Ok(stored) = stored_text(text) {
        assert_eq!(stored.parse(), Ok(quantity), "{text:?} is stored as {stored:?}");
    }
    // Arithmetic on extremes does not overflow.
    let _ = (quantity.saturating_add(quantity), quantity.saturating_mul(i64::MIN), quantity.milli_value(), quantity.round_up(3));
});
