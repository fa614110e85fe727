//! `cargo xtask dist`: the program as it is shipped.
//!
//! In: the workspace. Out: `target/dist/muster`. With `--guided` it is built twice: first so that it counts what runs, then, after a thousand jobs on an
//! embedded cluster and the project's scheduling scenarios, for what ran most; that takes about a fifth off the CPU time of a job. The program that counts
//! is linked without optimisation, which changes no count and would take longer than all the rest; what loads it need not be fast either. It needs
//! `llvm-profdata` of the release of LLVM that the compiler has (Debian: llvm-22; rustup: the component llvm-tools).

use crate::command::{cargo, done};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask dist               as `cargo build --profile dist -p muster`\n  cargo xtask dist --guided      half an hour on two cores\n  cargo xtask image              the OCI archive of it"
)]
pub struct Args {
    /// Build it for what runs most, by a profile that is taken first
    #[arg(long)]
    guided: bool,
}

pub fn run(args: Args) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let made = target.join("dist/muster");
    if !args.guided {
        build(&target, "", &[])?;
    } else {
        let profdata = profdata()?;
        let guided = std::path::absolute(target.join("guided"))?;
        let counts = guided.join("counts");
        // Counts of another build would be taken for this one's.
        let _ = std::fs::remove_dir_all(&counts);
        std::fs::create_dir_all(&counts)?;
        eprintln!("==> 1 of 4: a build that counts");
        let unlinked = [("CARGO_PROFILE_DIST_LTO", "off")];
        build(&guided, &format!("-Cprofile-generate={}", counts.display()), &unlinked)?;
        let counting = guided.join("counting-muster");
        std::fs::copy(guided.join("dist/muster"), &counting)?;
        eprintln!("==> 2 of 4: what it is built for");
        train(&counting)?;
        eprintln!("==> 3 of 4: the counts of all processes in one");
        let merged = guided.join("muster.profdata");
        done(Command::new(profdata).args(["merge", "--output"]).arg(&merged).arg(&counts))?;
        eprintln!("==> 4 of 4: a build by the counts");
        build(&guided, &format!("-Cprofile-use={}", merged.display()), &[])?;
        std::fs::create_dir_all(target.join("dist"))?;
        std::fs::copy(guided.join("dist/muster"), &made)?;
    }
    println!("{}", made.display());
    Ok(())
}

fn build(target: &Path, flags: &str, settings: &[(&str, &str)]) -> Result<()> {
    let mut command = cargo(&["build", "--profile", "dist", "--package", "muster"]);
    command.env("CARGO_TARGET_DIR", target).envs(settings.iter().copied());
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    done(&mut command)
}

/// Jobs through the whole pipeline, and decisions of every kind.
fn train(counting: &Path) -> Result<()> {
    let mut jobs = cargo(&["run", "--package", "muster-scheduler", "--example", "jobs", "--"]);
    done(jobs.args(["1000", "1000", "8"]).env("MUSTER_BIN", counting))?;
    done(Command::new(counting).args(["test", "tests/scenarios"]))
}

/// `llvm-profdata` of the compiler's own LLVM: no other reads its counts.
fn profdata() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = |args: &[&str]| -> Result<String> {
        let output = Command::new(&rustc).args(args).output().context("rustc")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let version = said(&["-vV"])?;
    let field =
        |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).map(|v| v.trim().to_owned());
    let llvm = field("LLVM version:").context("rustc does not tell its LLVM")?;
    let major = llvm.split('.').next().unwrap_or_default();
    let host = field("host:").unwrap_or_default();
    let own = Path::new(said(&["--print", "sysroot"])?.trim())
        .join("lib/rustlib")
        .join(host)
        .join("bin/llvm-profdata");
    for candidate in [own, format!("llvm-profdata-{major}").into(), "llvm-profdata".into()] {
        let Ok(output) = Command::new(&candidate).arg("--version").output() else { continue };
        if String::from_utf8_lossy(&output.stdout).contains(&format!("LLVM version {major}.")) {
            return Ok(candidate);
        }
    }
    bail!(
        "no llvm-profdata of LLVM {major}\nhint: `rustup component add llvm-tools`, or your distribution's package llvm-{major}"
    )
}
