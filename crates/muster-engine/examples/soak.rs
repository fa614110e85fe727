//! Generated cycles with the auditor on: `cargo run --release -p muster-engine --example soak -- [FROM] [CYCLES]`. Ends with the first seed that
//! goes wrong, or with a count of what happened.

#[path = "../tests/it/world.rs"]
mod world;

use muster_generate::Sizes;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap_or(0));
    let (from, cycles) = (args.next().unwrap_or(0), args.next().unwrap_or(10_000));
    let per_seed = 8;
    let mut tale = world::Tale::default();
    for i in 0..cycles.div_ceil(per_seed) {
        let seed = from + i;
        let sizes = if seed % 50 == 7 { Sizes::medium() } else { Sizes::small() };
        match world::live(seed, &sizes, per_seed as u32) {
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
