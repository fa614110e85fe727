//! Kubernetes resource quantities: exact, canonical, refusing what the API server refuses.
//!
//! In goes the text of a quantity (`"1.5Gi"`, `"250m"`, `"12e6"`), out comes a [`Quantity`]: a whole number of
//! nano-units and the family of suffixes it was written with. Printing gives the canonical form that Kubernetes
//! itself would print. There are no floats and no dependencies, and the type is `Copy`.
//!
//! ```
//! use k8s_quantity::Quantity;
//!
//! let memory: Quantity = "1.5Gi".parse()?;
//! assert_eq!(memory.to_string(), "1536Mi");
//! assert_eq!(memory.value(), 1_610_612_736);
//!
//! let cpu: Quantity = "0.5".parse()?;
//! assert_eq!(cpu.to_string(), "500m");
//! assert_eq!(cpu.milli_value(), 500);
//!
//! // Comparison is by value, whatever the spelling.
//! assert_eq!("1000m".parse::<Quantity>()?, "1".parse::<Quantity>()?);
//! assert!("1Gi".parse::<Quantity>()? > "1G".parse::<Quantity>()?);
//!
//! // A sum keeps the family of the left side.
//! assert_eq!((memory + "512Mi".parse()?).to_string(), "2Gi");
//! # Ok::<(), k8s_quantity::ParseError>(())
//! ```
//!
//! # What must stay true
//!
//! * `parse(print(q)) == q` for every quantity this crate can hold.
//! * `Eq`, `Ord` and `Hash` look at the value alone, never at the [`Format`].
//! * No input panics, and parsing is linear in the length of the text and allocates nothing.
//!
//! # The rules of the API server
//!
//! * Digits below one nano-unit are rounded away from zero: a wish for some resource is never rounded to none.
//! * A quantity with a binary suffix is capped at 2^63-1 units on parse. Decimal ones are not.
//! * A binary quantity below 1024 units, or with a fractional part, prints with decimal suffixes.
//! * Odd text is accepted where the server accepts it: `"+"`, `"."` and `"Ki"` are all zero.
//!
//! # Where this crate differs on purpose
//!
//! The reference implementation has corners where it prints or computes another number than the one it holds.
//! This crate stays correct there:
//!
//! * A decimal value of 1000E or more keeps the suffix `E` with a longer number; the reference drops the suffix.
//! * Values are held up to [`Quantity::MAX`] (10^29 units) and are capped there; the reference has no bound.
//! * [`Quantity::value`] and the other integer views saturate, and always round away from zero; the reference
//!   wraps around, and rounds some negative fractions the other way depending on how they were written.
//! * An exponent beyond 32 bits means a huge (or tiny) number; the reference wraps it around.

mod parse;
mod print;

use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign};

pub use parse::{ParseError, stored_text};

/// Nano-units in one unit.
const NANO: i128 = 1_000_000_000;
/// The largest magnitude held, in nano-units: 10^29 units, a round number that fits an `i128`.
const MAX_NANO: i128 = 10_i128.pow(38);

/// The family of suffixes a quantity is printed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of 1000 by letter: `12M`.
    #[default]
    DecimalSi,
    /// Powers of 1024 by letter: `12Mi`.
    BinarySi,
    /// Powers of ten by number: `12e6`.
    DecimalExponent,
}

/// A Kubernetes resource quantity: an exact number of nano-units, and how it is to be printed.
///
/// Arithmetic by operators saturates at [`Quantity::MAX`] and [`Quantity::MIN`]; the `checked_` methods report that
/// instead. As in Kubernetes, a result takes the format of its left side, unless that is zero: then the right side's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    /// Always within `-MAX_NANO..=MAX_NANO`.
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Zero, in decimal format.
    pub const ZERO: Quantity = Quantity { nano: 0, format: Format::DecimalSi };
    /// The largest quantity held: 10^29 units.
    pub const MAX: Quantity = Quantity { nano: MAX_NANO, format: Format::DecimalSi };
    /// The smallest quantity held: -10^29 units.
    pub const MIN: Quantity = Quantity { nano: -MAX_NANO, format: Format::DecimalSi };

    /// A whole number of units.
    ///
    /// ```
    /// use k8s_quantity::{Format, Quantity};
    /// assert_eq!(Quantity::from_i64(3 << 30, Format::BinarySi).to_string(), "3Gi");
    /// ```
    pub const fn from_i64(value: i64, format: Format) -> Self {
        Quantity { nano: value as i128 * NANO, format }
    }

    /// A number of thousandths, as processors are counted, in decimal format.
    pub const fn from_milli(milli: i64) -> Self {
        Quantity { nano: milli as i128 * (NANO / 1000), format: Format::DecimalSi }
    }

    /// A number of nano-units, capped to the range held.
    pub fn from_nano(nano: i128, format: Format) -> Self {
        Quantity { nano: nano.clamp(-MAX_NANO, MAX_NANO), format }
    }

    /// `value` times ten to the power of `scale`, in decimal format: rounded away from zero below nano-units,
    /// capped to the range held.
    pub fn from_scaled(value: i64, scale: i32) -> Self {
        let shift = i64::from(scale) + 9;
        let value = i128::from(value);
        let nano = if shift >= 0 {
            // No power of ten that large fits, so any number but zero goes past the cap.
            pow10(shift).map_or(value.signum() * MAX_NANO, |factor| value.saturating_mul(factor))
        } else {
            divide_away_from_zero(value, pow10(-shift))
        };
        Quantity::from_nano(nano, Format::DecimalSi)
    }

    /// The exact value in nano-units.
    pub const fn nano(self) -> i128 {
        self.nano
    }

    /// The family of suffixes this prints with.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same value, printed with another family of suffixes.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Quantity { nano: self.nano, format }
    }

    /// Whether this is zero.
    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// -1, 0 or 1.
    pub const fn signum(self) -> i32 {
        self.nano.signum() as i32
    }

    /// Whether this is below zero.
    pub const fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whole units, rounded away from zero, saturating.
    ///
    /// ```
    /// use k8s_quantity::Quantity;
    /// assert_eq!("1500m".parse::<Quantity>()?.value(), 2);
    /// assert_eq!("-1500m".parse::<Quantity>()?.value(), -2);
    /// # Ok::<(), k8s_quantity::ParseError>(())
    /// ```
    pub fn value(self) -> i64 {
        self.scaled_value(0)
    }

    /// Thousandths, rounded away from zero, saturating.
    pub fn milli_value(self) -> i64 {
        self.scaled_value(-3)
    }

    /// This divided by ten to the power of `scale`, rounded away from zero, saturating.
    ///
    /// ```
    /// use k8s_quantity::Quantity;
    /// assert_eq!("1500M".parse::<Quantity>()?.scaled_value(9), 2);
    /// assert_eq!("1".parse::<Quantity>()?.scaled_value(-6), 1_000_000);
    /// # Ok::<(), k8s_quantity::ParseError>(())
    /// ```
    pub fn scaled_value(self, scale: i32) -> i64 {
        let shift = i64::from(scale) + 9;
        let scaled = if shift >= 0 {
            divide_away_from_zero(self.nano, pow10(shift))
        } else {
            pow10(-shift).map_or(self.nano.signum() * i128::MAX, |factor| self.nano.saturating_mul(factor))
        };
        saturate(scaled)
    }

    /// Whole units when this is a whole number that fits, else nothing.
    pub fn as_i64(self) -> Option<i64> {
        if self.nano % NANO == 0 { i64::try_from(self.nano / NANO).ok() } else { None }
    }

    /// Rounded away from zero to a multiple of ten to the power of `scale`. The API server does so with -3 to the
    /// requests and limits of a pod.
    ///
    /// ```
    /// use k8s_quantity::Quantity;
    /// assert_eq!("0.1m".parse::<Quantity>()?.round_up(-3).to_string(), "1m");
    /// # Ok::<(), k8s_quantity::ParseError>(())
    /// ```
    #[must_use]
    pub fn round_up(self, scale: i32) -> Self {
        let shift = i64::from(scale) + 9;
        if shift <= 0 {
            return self;
        }
        // Past the range held there is one multiple below the cap: zero, and rounding away from it gives the cap.
        let nano = match pow10(shift) {
            Some(unit) => divide_away_from_zero(self.nano, Some(unit)).saturating_mul(unit),
            None => self.nano.signum() * MAX_NANO,
        };
        Quantity::from_nano(nano, self.format)
    }

    /// The sum, or nothing outside the range held.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        in_range(self.nano.checked_add(other.nano)?, self.format_with(other))
    }

    /// The difference, or nothing outside the range held.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        in_range(self.nano.checked_sub(other.nano)?, self.format_with(other))
    }

    /// The product with a whole number, or nothing outside the range held.
    pub fn checked_mul(self, factor: i64) -> Option<Self> {
        in_range(self.nano.checked_mul(i128::from(factor))?, self.format)
    }

    /// The sum, capped to the range held.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Quantity::from_nano(self.nano.saturating_add(other.nano), self.format_with(other))
    }

    /// The difference, capped to the range held.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Quantity::from_nano(self.nano.saturating_sub(other.nano), self.format_with(other))
    }

    /// The product with a whole number, capped to the range held.
    #[must_use]
    pub fn saturating_mul(self, factor: i64) -> Self {
        Quantity::from_nano(self.nano.saturating_mul(i128::from(factor)), self.format)
    }

    /// The distance from zero.
    #[must_use]
    pub const fn abs(self) -> Self {
        Quantity { nano: self.nano.abs(), format: self.format }
    }

    const fn format_with(self, other: Self) -> Format {
        if self.nano == 0 { other.format } else { self.format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = self.saturating_sub(other);
    }
}

impl Neg for Quantity {
    type Output = Self;
    fn neg(self) -> Self {
        Quantity { nano: -self.nano, format: self.format }
    }
}

impl Mul<i64> for Quantity {
    type Output = Self;
    fn mul(self, factor: i64) -> Self {
        self.saturating_mul(factor)
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Quantity::ZERO, Add::add)
    }
}

impl<'a> Sum<&'a Quantity> for Quantity {
    fn sum<I: Iterator<Item = &'a Self>>(items: I) -> Self {
        items.copied().sum()
    }
}

fn in_range(nano: i128, format: Format) -> Option<Quantity> {
    (-MAX_NANO..=MAX_NANO).contains(&nano).then_some(Quantity { nano, format })
}

/// Ten to the power of `exponent`, or nothing when it is negative or does not fit.
fn pow10(exponent: i64) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// `value / divisor`, away from zero. No divisor stands for one larger than any value.
fn divide_away_from_zero(value: i128, divisor: Option<i128>) -> i128 {
    match divisor {
        Some(divisor) => value / divisor + if value % divisor == 0 { 0 } else { value.signum() },
        None => value.signum(),
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}
