//! The engine's benchmarks. `cargo xtask bench engine` runs every one of them in a process of its own and prints the table.
//!
//! `bench list` names them; `bench run <name> [--quick | --small]` runs one and prints what it measured, a line each, fields separated by
//! tabs:
//!
//! ```text
//! figure <label> <cpu ns> <wall ns> <target ns or -> <theirs ms or -> <pods or ->
//! fact   <text>
//! wrong  <text>
//! peak   <KiB>
//! ```
//!
//! *Invariant:* every benchmark checks what was decided; `wrong` says that its figures mean nothing.
//! *Invariant:* inputs are the same in every run.

mod cases;
mod clusters;
mod meter;
mod outcome;

use std::process::ExitCode;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Full,
    /// The same sizes, fewer repetitions.
    Quick,
    /// A twentieth of the sizes, once: for tools that make everything fifty times slower.
    Small,
}

impl Effort {
    pub fn repetitions(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => full.div_ceil(10),
            Self::Small => 1,
        }
    }

    pub fn size(self, full: u32) -> u32 {
        if self == Self::Small { full.div_ceil(20) } else { full }
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(|arg| &**arg).collect();
    let (name, effort) = match args[..] {
        ["list"] => {
            for case in cases::all() {
                println!("{}\t{}", case.name, case.about);
            }
            return ExitCode::SUCCESS;
        }
        ["run", name] => (name, Effort::Full),
        ["run", name, "--quick"] => (name, Effort::Quick),
        ["run", name, "--small"] => (name, Effort::Small),
        _ => {
            eprintln!("usage: bench list | bench run <name> [--quick | --small]");
            return ExitCode::FAILURE;
        }
    };
    match cases::all().into_iter().find(|case| case.name == name) {
        Some(case) => {
            print!("{}", (case.run)(effort));
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("error: no benchmark is called {name}; `bench list` names them");
            ExitCode::FAILURE
        }
    }
}
