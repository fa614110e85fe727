//! Generated cycles with the auditor on: `cargo run --release -p muster-engine --example soak -- [FROM] [CYCLES] [mixed|alone]`: clusters of KAI's
//! alone, clusters in which several systems live, or by default both in turn. Ends with the first seed that
//! goes wrong, or with a count of what happened.

#[path = "../tests/it/world.rs"]
mod world;

use muster_generate::Sizes;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(default, |text| text.parse().unwrap_or(0));
    let (from, cycles) = (number(0, 0), number(1, 10_000));
    let only = args.get(2).map(String::as_str);
    let per_seed = 8;
    let mut tale = world::Tale::default();
    for i in 0..cycles.div_ceil(per_seed) {
        let seed = from + i;
        let sizes = if seed % 50 == 7 { Sizes::medium() } else { Sizes::small() };
        let is_mixed = match only {
            Some("mixed") => true,
            Some(_) => false,
            None => seed % 2 == 1,
        };
        let lived = match is_mixed {
            true => world::live_mixed(seed, &sizes, per_seed as u32),
            false => world::live(seed, &sizes, per_seed as u32),
        };
        match lived {
            Ok(more) => tale.join(&more),
            Err(what) => {
                eprintln!("{what}");
                return ExitCode::FAILURE;
            }
        }
        if i % 1000 == 999 {
            eprintln!("{} cycles: {tale:?}", (i + 1) * per_seed);
        }
    }
    println!("{} cycles, no finding: {tale:?}", cycles.div_ceil(per_seed) * per_seed);
    ExitCode::SUCCESS
}
