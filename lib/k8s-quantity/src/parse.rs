//! Reading a quantity. In: text. Out: a [`Quantity`], or why the API server would refuse the text.
//!
//! The text is cut into sign, whole digits, fraction digits and suffix; then the number is brought to nano-units
//! with one pass over the digits, so that its length costs time but no memory. Whatever lies below one nano-unit
//! rounds away from zero. Which texts are refused, and with which message, is as in Kubernetes.

use core::fmt;
use core::str::FromStr;

use crate::{Format, MAX_NANO, NANO, Quantity};

/// Why a text is not a quantity. The messages are those of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The text does not look like a number with a suffix.
    Format,
    /// There is no number where one is needed.
    Numeric,
    /// The text after the number is no known suffix.
    Suffix,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            ParseError::Numeric => "unable to parse numeric part of quantity",
            ParseError::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl core::error::Error for ParseError {}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts = Parts::split(text)?;
        parts.quantity(parts.suffix()?)
    }
}

/// The text an API server gives back for a quantity it was sent.
///
/// A text that is nearly canonical is kept as written, since the server remembers it; any other is printed in
/// canonical form. Both denote the same value. Surrounding blanks are dropped, as the server does on decoding.
///
/// ```
/// use k8s_quantity::stored_text;
/// assert_eq!(stored_text("0.5")?, "500m");
/// assert_eq!(stored_text("1.500")?, "1.500");
/// assert_eq!(stored_text("+3Gi")?, "+3Gi");
/// assert_eq!(stored_text("1024Ki")?, "1Mi");
/// # Ok::<(), k8s_quantity::ParseError>(())
/// ```
pub fn stored_text(text: &str) -> Result<String, ParseError> {
    let text = text.trim();
    let parts = Parts::split(text)?;
    let suffix = parts.suffix()?;
    let quantity = parts.quantity(suffix)?;
    Ok(if parts.kept_as_written(suffix) { text.to_owned() } else { quantity.to_string() })
}

/// A text cut up. `whole` has no leading zeros.
#[derive(Clone, Copy)]
struct Parts<'a> {
    negative: bool,
    /// Whether a digit was seen; some roads through the server's parser need one and others do not.
    has_digit: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    suffix: &'a [u8],
}

/// What a suffix means: multiply by two or by ten to the power of `exponent`.
#[derive(Clone, Copy)]
struct Suffix {
    format: Format,
    exponent: i64,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ParseError> {
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(ParseError::Format);
        }
        let (negative, rest) = match bytes {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (zeros, rest) = take_while(rest, |b| b == b'0');
        let (whole, rest) = take_while(rest, |b| b.is_ascii_digit());
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => take_while(rest, |b| b.is_ascii_digit()),
            rest => (&rest[..0], rest),
        };
        let has_digit = !(zeros.is_empty() && whole.is_empty() && fraction.is_empty());
        let (_, after_letters) = take_while(rest, |b| b"eEinumkKMGTP".contains(&b));
        let after_sign = match after_letters {
            [b'-' | b'+', after @ ..] => after,
            after => after,
        };
        let (_, after_digits) = take_while(after_sign, |b| b.is_ascii_digit());
        if !after_digits.is_empty() {
            return Err(ParseError::Format);
        }
        Ok(Parts { negative, has_digit, whole, fraction, suffix: rest })
    }

    fn suffix(&self) -> Result<Suffix, ParseError> {
        let (format, exponent) = match self.suffix {
            b"n" => (Format::DecimalSi, -9),
            b"u" => (Format::DecimalSi, -6),
            b"m" => (Format::DecimalSi, -3),
            b"" => (Format::DecimalSi, 0),
            b"k" => (Format::DecimalSi, 3),
            b"M" => (Format::DecimalSi, 6),
            b"G" => (Format::DecimalSi, 9),
            b"T" => (Format::DecimalSi, 12),
            b"P" => (Format::DecimalSi, 15),
            b"E" => (Format::DecimalSi, 18),
            b"Ki" => (Format::BinarySi, 10),
            b"Mi" => (Format::BinarySi, 20),
            b"Gi" => (Format::BinarySi, 30),
            b"Ti" => (Format::BinarySi, 40),
            b"Pi" => (Format::BinarySi, 50),
            b"Ei" => (Format::BinarySi, 60),
            [b'e' | b'E', digits @ ..] => {
                let exponent =
                    core::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
                (Format::DecimalExponent, exponent.ok_or(ParseError::Suffix)?)
            }
            _ => return Err(ParseError::Suffix),
        };
        Ok(Suffix { format, exponent })
    }

    fn quantity(&self, suffix: Suffix) -> Result<Quantity, ParseError> {
        let Suffix { mut format, exponent } = suffix;
        if !self.has_digit && !self.is_short(suffix) {
            return Err(ParseError::Numeric);
        }
        let nano = match format {
            Format::BinarySi => {
                let nano = self.binary_nano(exponent).min(i128::from(i64::MAX) * NANO);
                if nano > 0 && nano < NANO {
                    format = Format::DecimalSi;
                }
                nano
            }
            Format::DecimalSi | Format::DecimalExponent => self.decimal_nano(exponent),
        };
        Ok(Quantity { nano: if self.negative { -nano } else { nano }, format })
    }

    /// The magnitude times 10^`exponent`, in nano-units, rounded up and capped.
    fn decimal_nano(&self, exponent: i64) -> i128 {
        let digits = || self.whole.iter().chain(self.fraction).skip_while(|b| **b == b'0');
        let n_digits = digits().count() as i64;
        if n_digits == 0 {
            return 0;
        }
        // The digits read as one whole number, shifted left by this many places, are the nano-units.
        let shift = exponent.saturating_sub(self.fraction.len() as i64).saturating_add(9);
        let n_places = n_digits.saturating_add(shift);
        if n_places > 39 {
            return MAX_NANO;
        }
        if n_places < 0 {
            return 1;
        }
        let n_kept = n_digits.min(n_places) as usize;
        let kept =
            digits().take(n_kept).try_fold(0_i128, |sum, b| sum.checked_mul(10)?.checked_add(digit(*b)));
        let dropped = digits().skip(n_kept).any(|b| *b != b'0');
        kept.and_then(|kept| kept.checked_mul(10_i128.checked_pow(shift.max(0) as u32)?))
            .and_then(|nano| nano.checked_add(i128::from(dropped)))
            .map_or(MAX_NANO, |nano| nano.min(MAX_NANO))
    }

    /// The magnitude times 2^`exponent`, in nano-units, rounded up and capped.
    fn binary_nano(&self, exponent: i64) -> i128 {
        // At most 2^60 * 10^9, which leaves more than five bits for the steps below.
        let unit = NANO << exponent;
        let whole = self.whole.iter().try_fold(0_i128, |sum, b| sum.checked_mul(10)?.checked_add(digit(*b)));
        let Some(whole) = whole.and_then(|whole| whole.checked_mul(unit)) else { return MAX_NANO };
        // From the last digit to the first: the rounded-down part of the unit that the digits so far stand for.
        // Rounding down at each step gives the same as rounding down at the end, and the remainders tell if
        // anything was lost.
        let mut part = 0;
        let mut lost = false;
        for b in self.fraction.iter().rev() {
            let tenfold = digit(*b) * unit + part;
            part = tenfold / 10;
            lost |= tenfold % 10 != 0;
        }
        whole.saturating_add(part + i128::from(lost)).min(MAX_NANO)
    }

    /// Whether the server takes its short road: a number of few digits and at least nano precision.
    fn is_short(&self, suffix: Suffix) -> bool {
        let n_whole = self.whole.len().max(1) as i64;
        let n_fraction = self.fraction.len() as i64;
        match suffix.format {
            Format::BinarySi => self.fraction.is_empty() && 14 - n_whole - suffix.exponent * 3 / 10 >= 0,
            Format::DecimalSi | Format::DecimalExponent => {
                n_whole + n_fraction <= 18 && suffix.exponent.saturating_sub(n_fraction) >= -9
            }
        }
    }

    /// Whether the server remembers the text instead of printing the value.
    fn kept_as_written(&self, suffix: Suffix) -> bool {
        if !self.is_short(suffix) {
            return false;
        }
        match suffix.format {
            // The last three bits of a number in base ten follow from its last three digits.
            Format::BinarySi => {
                self.whole.iter().rev().take(3).rev().fold(0, |sum, b| sum * 10 + digit(*b)) % 8 != 0
            }
            Format::DecimalSi | Format::DecimalExponent => {
                let mut last = self.fraction.iter().rev().chain(self.whole.iter().rev());
                let ends_in_zeros = (0..3).all(|_| last.next() == Some(&b'0'));
                let scale = suffix.exponent.saturating_sub(self.fraction.len() as i64);
                scale % 3 == 0 && !ends_in_zeros && !self.whole.is_empty()
            }
        }
    }
}

fn take_while(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|b| !wanted(*b)).unwrap_or(bytes.len()))
}

fn digit(byte: u8) -> i128 {
    i128::from(byte - b'0')
}
