//! Behaviour as tables, laws as properties.
//!
//! `cases.tsv` holds what resource.ParseQuantity of apimachinery v0.36.3 answered: input, canonical text (or `!` and
//! the kind of error), and the text its JSON encoding shows.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use k8s_quantity::{Format, ParseError, Quantity, stored_text};
use proptest::prelude::*;

#[track_caller]
fn q(text: &str) -> Quantity {
    text.parse().expect("the case is a valid quantity")
}

#[test]
fn answers_as_the_reference_does() {
    let mut n_cases = 0;
    for line in include_str!("cases.tsv").lines() {
        let mut columns = line.split('\t');
        let input = columns.next().unwrap();
        let expected = columns.next().unwrap();
        let stored = columns.next().unwrap();
        let got = input.parse::<Quantity>();
        let kind = match got {
            Ok(quantity) => quantity.to_string(),
            Err(ParseError::Format) => "!format".to_owned(),
            Err(ParseError::Numeric) => "!numeric".to_owned(),
            Err(ParseError::Suffix) => "!suffix".to_owned(),
        };
        assert_eq!(kind, expected, "input {input:?}");
        if got.is_ok() {
            assert_eq!(stored_text(input).unwrap(), stored, "stored form of {input:?}");
            assert_eq!(q(stored), q(input), "stored form of {input:?}");
        }
        n_cases += 1;
    }
    assert!(n_cases > 350, "only {n_cases} cases");
}

#[test]
fn values_past_the_reference() {
    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(q(input).to_string(), expected);
        assert_eq!(q(expected), q(input));
    }
    check("1000E", "1000E");
    check("-1000E", "-1000E");
    check("1e28", "10e27");
    check("1e29", "100e27");
    check("1e30", "100e27");
    check("-1e30", "-100e27");
    check("1e4294967296", "100e27");
    check("1e9223372036854775807", "100e27");
    check("1.5e-9223372036854775808", "1e-9");
    check("0e9223372036854775807", "0");
    check("100000000000E", "100000000000E");
    check("100000000001E", "100000000000E");
    check(&"9".repeat(5000), "100000000000E");
    check(&format!("0.{}1", "0".repeat(5000)), "1n");
    check(&format!("{}1Ki", "0".repeat(5000)), "1Ki");
    check(&format!("{}Ki", "9".repeat(5000)), "9223372036854775807");
}

#[test]
fn messages_are_those_of_the_server() {
    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(input.parse::<Quantity>().unwrap_err().to_string(), expected);
    }
    let format =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    check("", format);
    check("1 Gi", format);
    check("ten", format);
    check("1K", "unable to parse quantity's suffix");
    check("e-10", "unable to parse numeric part of quantity");
}

#[test]
fn integer_views() {
    #[track_caller]
    fn check(input: &str, value: i64, milli: i64, giga: i64, exact: Option<i64>) {
        let quantity = q(input);
        let views = (quantity.value(), quantity.milli_value(), quantity.scaled_value(9), quantity.as_i64());
        assert_eq!(views, (value, milli, giga, exact));
    }
    check("0", 0, 0, 0, Some(0));
    check("1", 1, 1000, 1, Some(1));
    check("1m", 1, 1, 1, None);
    check("1n", 1, 1, 1, None);
    check("-1n", -1, -1, -1, None);
    check("1500m", 2, 1500, 1, None);
    check("-0.3Ki", -308, -307_200, -1, None);
    check("2G", 2_000_000_000, 2_000_000_000_000, 2, Some(2_000_000_000));
    check("2000000001", 2_000_000_001, 2_000_000_001_000, 3, Some(2_000_000_001));
    check("9223372036854775807", i64::MAX, i64::MAX, 9_223_372_037, Some(i64::MAX));
    check("-9223372036854775809", i64::MIN, i64::MIN, -9_223_372_037, None);
    check("1e29", i64::MAX, i64::MAX, i64::MAX, None);
    assert_eq!(Quantity::MAX.scaled_value(i32::MAX), 1);
    assert_eq!(Quantity::MAX.scaled_value(i32::MIN), i64::MAX);
    assert_eq!(Quantity::MIN.scaled_value(i32::MIN), i64::MIN);
    assert_eq!(Quantity::ZERO.scaled_value(i32::MIN), 0);
}

#[test]
fn constructors() {
    #[track_caller]
    fn check(quantity: Quantity, expected: &str) {
        assert_eq!(quantity.to_string(), expected);
    }
    check(Quantity::from_i64(1 << 20, Format::BinarySi), "1Mi");
    check(Quantity::from_i64(1 << 20, Format::DecimalSi), "1048576");
    check(Quantity::from_i64(5_000_000, Format::DecimalExponent), "5e6");
    check(Quantity::from_i64(i64::MIN, Format::DecimalSi), "-9223372036854775808");
    check(Quantity::from_milli(2500), "2500m");
    check(Quantity::from_milli(i64::MAX), "9223372036854775807m");
    check(Quantity::from_scaled(5, 9), "5G");
    check(Quantity::from_scaled(15, -10), "2n");
    check(Quantity::from_scaled(-15, -10), "-2n");
    check(Quantity::from_scaled(1, i32::MIN), "1n");
    check(Quantity::from_scaled(-1, i32::MAX), "-100000000000E");
    check(Quantity::from_scaled(0, i32::MAX), "0");
    check(Quantity::from_nano(i128::MAX, Format::DecimalSi), "100000000000E");
    check(Quantity::from_nano(i128::MIN, Format::DecimalSi), "-100000000000E");
    check(q("1Gi").with_format(Format::DecimalSi), "1073741824");
}

#[test]
fn rounding_up() {
    #[track_caller]
    fn check(input: &str, scale: i32, expected: &str) {
        assert_eq!(q(input).round_up(scale).to_string(), expected);
    }
    check("0.1m", -3, "1m");
    check("-0.1m", -3, "-1m");
    check("1m", -3, "1m");
    check("1.0001", -3, "1001m");
    check("1.0001", 0, "2");
    check("19", 1, "20");
    check("1n", i32::MIN, "1n");
    check("1n", i32::MAX, "100000000000E");
    check("0", i32::MAX, "0");
}

#[test]
fn arithmetic_and_format() {
    #[track_caller]
    fn check(result: Quantity, expected: &str) {
        assert_eq!(result.to_string(), expected);
    }
    check(q("1Gi") + q("1G"), "2073741824");
    check(q("1Gi") + q("512Mi"), "1536Mi");
    check(q("0") + q("1Gi"), "1Gi");
    check(q("0") - q("1Gi"), "-1Gi");
    check(q("1Gi") - q("1Gi") + q("1M"), "1M");
    check(q("100m") + q("1e3"), "1000100m");
    check(q("250m") * 4, "1");
    check(q("1Mi") * -1024, "-1Gi");
    check(-q("1Ki"), "-1Ki");
    check(q("-3").abs(), "3");
    check(Quantity::MAX + Quantity::MAX, "100000000000E");
    check(Quantity::MIN - Quantity::MAX, "-100000000000E");
    check(Quantity::MAX * i64::MIN, "-100000000000E");
    check([q("1"), q("500m")].iter().sum(), "1500m");
    assert_eq!(Quantity::MAX.checked_add(q("1n")), None);
    assert_eq!(Quantity::MIN.checked_sub(q("1n")), None);
    assert_eq!(Quantity::MAX.checked_mul(2), None);
    assert_eq!(Quantity::MAX.checked_mul(1), Some(Quantity::MAX));
    assert_eq!((q("-1").signum(), q("0").signum(), q("1n").signum()), (-1, 0, 1));
    assert!(q("-1n").is_negative() && !q("0").is_negative() && q("0Ki").is_zero());
}

#[test]
fn display_honours_a_width() {
    assert_eq!(format!("[{:>6}]", q("1Gi")), "[   1Gi]");
    assert_eq!(format!("[{:<4}]", q("0")), "[0   ]");
}

#[test]
fn equal_values_are_one_key() {
    let keys: BTreeSet<Quantity> = ["1", "1000m", "1e0", "0.001k", "1000000000n"].map(q).into();
    assert_eq!(keys.len(), 1);
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    assert_eq!(hasher.hash_one(q("1Ki")), hasher.hash_one(q("1024000m")));
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)]
}

/// Magnitudes of all sizes, round numbers of both bases among them.
fn quantities() -> impl Strategy<Value = Quantity> {
    let nano = prop_oneof![
        any::<i128>(),
        any::<i64>().prop_map(i128::from),
        (any::<i32>(), 0..20_u32).prop_map(|(n, e)| i128::from(n) * 10_i128.pow(e)),
        (any::<i32>(), 0..60_u32).prop_map(|(n, e)| (i128::from(n) << e) * 1_000_000_000),
    ];
    (nano, formats()).prop_map(|(nano, format)| Quantity::from_nano(nano, format))
}

/// Quantities whose units fit 2^63-1, so that binary text is not capped when it is read back.
fn modest() -> impl Strategy<Value = Quantity> {
    let limit = i128::from(i64::MAX) * 1_000_000_000;
    quantities().prop_map(move |q| Quantity::from_nano(q.nano().clamp(-limit, limit), q.format()))
}

/// Text near the grammar.
const NEAR_TEXT: &str =
    "[-+]?[0-9]{0,22}(\\.[0-9]{0,14})?(n|u|m|k|M|G|T|P|E|[KMGTPE]i|[eE][-+]?[0-9]{1,3}|K|i)?";

proptest! {
    #[test]
    fn printed_text_reads_back(q in modest()) {
        let text = q.to_string();
        let again: Quantity = text.parse().unwrap();
        prop_assert_eq!(again, q);
        // A binary number that ends up without a suffix, such as 10000, reads back as a decimal one.
        if again.format() == q.format() {
            prop_assert_eq!(again.to_string(), text, "canonical text is a fixed point");
        }
    }

    #[test]
    fn any_text_is_answered(text in ".*") {
        if let Ok(q) = text.parse::<Quantity>() {
            prop_assert_eq!(q.to_string().parse::<Quantity>().unwrap(), q);
        }
    }

    #[test]
    fn text_near_the_grammar_is_answered(text in NEAR_TEXT) {
        if let Ok(q) = text.parse::<Quantity>() {
            prop_assert_eq!(q.to_string().parse::<Quantity>().unwrap(), q);
            prop_assert_eq!(stored_text(&text).unwrap().parse::<Quantity>().unwrap(), q);
        }
    }

    #[test]
    fn order_is_that_of_the_numbers(a in quantities(), b in quantities()) {
        prop_assert_eq!(a.cmp(&b), a.nano().cmp(&b.nano()));
        prop_assert_eq!(a == b, a.with_format(b.format()) == b);
        prop_assert_eq!(a.cmp(&b), (-b).cmp(&-a));
    }

    #[test]
    fn sums_undo(a in modest(), b in modest()) {
        prop_assert_eq!(a + b - b, a);
        prop_assert_eq!(a + b, b + a);
        prop_assert_eq!(a.checked_add(b), Some(a + b));
        prop_assert_eq!(a - b, a + -b);
    }

    #[test]
    fn products_are_sums(a in modest(), n in 0_i64..50) {
        let sum: Quantity = (0..n).map(|_| a).sum();
        prop_assert_eq!(a * n, sum);
    }

    #[test]
    fn integer_views_round_away_from_zero(a in quantities(), scale in -30_i32..40) {
        let view = i128::from(a.scaled_value(scale));
        prop_assert_eq!(view.signum(), a.nano().signum());
        prop_assert_eq!((-a).scaled_value(scale).checked_neg().unwrap_or(i64::MAX), a.scaled_value(scale).max(-i64::MAX));
        if (-9..=0).contains(&scale) && view.abs() < i128::from(i64::MAX) {
            let unit = 10_i128.pow((scale + 9) as u32);
            prop_assert!((view * unit).abs() >= a.nano().abs());
            prop_assert!((view.abs() - 1) * unit < a.nano().abs() || a.is_zero());
        }
    }

    #[test]
    fn rounding_up_is_idempotent_and_never_shrinks(a in modest(), scale in -12_i32..20) {
        let rounded = a.round_up(scale);
        prop_assert!(rounded.abs() >= a.abs());
        prop_assert_eq!(rounded.round_up(scale), rounded);
    }
}
