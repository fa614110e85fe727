//! The canonical text of a quantity. In: a [`Quantity`]. Out: the number with the largest suffix of its family that
//! leaves no fraction, by way of `Display`. Parsing that text gives the same value back.

use core::fmt;

use crate::{Format, NANO, Quantity};

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.pad("0");
        }
        // Binary suffixes are for whole numbers that need one; the others print exactly as decimals.
        let binary =
            self.format == Format::BinarySi && self.nano % NANO == 0 && self.nano.abs() >= 1024 * NANO;
        if binary {
            let (number, times) = remove_factors(self.nano / NANO, 1024, BINARY_SUFFIXES.len() - 1);
            return pad(f, format_args!("{number}{}", BINARY_SUFFIXES[times]));
        }
        if self.format == Format::DecimalExponent {
            let (number, times) = remove_factors(self.nano, 1000, usize::MAX);
            // At most 38 digits, so at most 12 groups of three.
            return match times as i32 * 3 - 9 {
                0 => pad(f, format_args!("{number}")),
                exponent => pad(f, format_args!("{number}e{exponent}")),
            };
        }
        let (number, times) = remove_factors(self.nano, 1000, DECIMAL_SUFFIXES.len() - 1);
        pad(f, format_args!("{number}{}", DECIMAL_SUFFIXES[times]))
    }
}

/// Divides by `factor` while nothing is lost, at most `limit` times; gives the rest and how often.
fn remove_factors(mut number: i128, factor: i128, limit: usize) -> (i128, usize) {
    let mut times = 0;
    while times < limit && number % factor == 0 {
        number /= factor;
        times += 1;
    }
    (number, times)
}

/// Writes straight through, unless the caller asked for a width.
fn pad(f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>) -> fmt::Result {
    if f.width().is_none() && f.precision().is_none() { f.write_fmt(text) } else { f.pad(&text.to_string()) }
}
