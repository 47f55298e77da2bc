//! Arguments, run, exit code.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokenring::config::{Command, MockPlan, parse};

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            // Several problems stand below each other.
            eprintln!("Error: {}", error.to_string().replace('\n', "\n       "));
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<ExitCode> {
    match parse(std::env::args_os().skip(1))? {
        Command::Profile(plan) => Ok(ExitCode::from(tokenring::run::profile(*plan)?.exit_code())),
        Command::MockServer(plan) => serve(&plan),
        Command::Print(text) => {
            print!("{text}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn serve(plan: &MockPlan) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let server = tokenring::mock::start(plan)?;
    println!("{}", server.url());
    server.wait(&stop);
    Ok(ExitCode::SUCCESS)
}
