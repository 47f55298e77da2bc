//! Arguments, run, exit code.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokenring::config::{Command, MockPlan, parse};

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            // Several problems stand below each other.
            let text = error.to_string().replace('\n', "\n       ");
            tokenring::report::tell(&format!("Error: {text}"));
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<ExitCode> {
    match parse(tokenring::run::arguments())? {
        Command::Profile(plan) => Ok(ExitCode::from(tokenring::run::profile(*plan)?.exit_code())),
        Command::MockServer(plan) => serve(&plan),
        Command::Calibrate(plan) => Ok(ExitCode::from(
            tokenring::calibrate::calibrate(&plan)?.exit_code(),
        )),
        Command::Print(text) => {
            // A reader that closed its end early (`| head`) has seen what it wanted.
            let _ = std::io::stdout().write_all(text.as_bytes());
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
    // Nobody may be reading, and the server serves all the same.
    let _ = writeln!(std::io::stdout(), "{}", server.url());
    server.wait(&stop);
    Ok(ExitCode::SUCCESS)
}
