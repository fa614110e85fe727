//! Runs scenario files without the rest of Muster: `cargo run -p muster-scenario --example cases -- PATH… [--filter S] [--explain]
//! [--actual] [-v]`. Prints a paragraph per failure, a count per file, and the summary as the last line.

use muster_scenario::{Options, Suite};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut options = Options::default();
    let mut verbose = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--filter" => options.filter = args.next(),
            "--explain" => options.explain = true,
            "--actual" => options.actual = true,
            "-v" => verbose = true,
            path => paths.push(path.into()),
        }
    }
    let suite = match Suite::read(&paths) {
        Ok(suite) => suite,
        Err(error) => {
            eprintln!("error: {}", error.in_full());
            return ExitCode::FAILURE;
        }
    };
    let report = suite.run(&options, &mut |_, _, _| {});
    for case in &report.cases {
        print!("{}", case.text(verbose));
        if let Some(actual) = &case.actual {
            println!("      actual: {actual}");
        }
    }
    for file in report.by_file() {
        let all = file.passed + file.failed;
        println!("{:>4}/{all:<4} {}", file.passed, file.file);
    }
    println!("{}", report.summary());
    if report.ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
