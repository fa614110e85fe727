//! Chores of the Muster workspace, one file per command. `cargo xtask --help` lists them.

mod arrows;
mod bench;
mod command;
mod crd_coverage;
mod dist;
mod fuzz;
mod image;
mod kube;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Muster workspace")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that must hold before a change lands
    Test(test::Args),
    /// Compare the generated CRDs with a folder of upstream CRDs
    CrdCoverage(crd_coverage::Args),
    /// Measure what decisions cost
    Bench(bench::Args),
    /// Run the parsers on random input
    Fuzz(fuzz::Args),
    /// Build the program as it is shipped
    Dist(dist::Args),
    /// Make an OCI image archive of a binary, without Docker
    Image(image::Args),
    /// Build and run a real Kubernetes on loopback
    Kube(kube::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Test(args) => test::run(args),
        Command::CrdCoverage(args) => crd_coverage::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Fuzz(args) => fuzz::run(args),
        Command::Dist(args) => dist::run(args),
        Command::Image(args) => image::run(args),
        Command::Kube(args) => kube::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
