//! The `dlock` command: runs programs under locks, shows locks, frees them. The server decides everything about
//! locks; this program asks, shows and supervises a child process.
#![forbid(unsafe_code)]

mod args;
mod connect;
mod dev;
mod doctor;
mod exit;
mod free;
mod json;
mod log;
mod look;
mod metrics;
mod pages;
mod ping;
mod run;
mod show;
mod table;
mod text;
mod top;
mod usage;
mod waits;
mod watch;

use std::env;
use std::io::{self, BufWriter, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use nix::sys::signal::Signal;

use self::args::{Cli, Command};
use self::exit::{Failure, SYSTEM};
use self::run::Ending;

fn main() -> ExitCode {
    if let Some(ended) = dev::play(&mut env::args_os().skip(1)) {
        return ended;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(error),
    };
    // One thread, because the terminal and its signals are set up per thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ending = match runtime {
        Ok(runtime) => runtime.block_on(carry_out(&cli)),
        Err(error) => Err(Failure::new(SYSTEM, error.to_string())),
    };
    match ending {
        Ok(Ending::Code(code)) => ExitCode::from(code),
        Ok(Ending::Signal(signal)) => end_by(signal),
        Err(failure) => failure.report(cli.command.wants_json()),
    }
}

async fn carry_out(cli: &Cli) -> Result<Ending, Failure> {
    match &cli.command {
        Command::Run(args) => return run::run(connect::builder(&cli.tls)?, &cli.url, args).await,
        Command::Metrics(args) => {
            return metrics::print(connect::builder(&cli.tls)?, &cli.url, args).await;
        }
        Command::Exporter(args) => {
            return metrics::serve(connect::builder(&cli.tls)?, &cli.url, args).await;
        }
        Command::Ping(args) => {
            return ping::ping(connect::builder(&cli.tls)?, &cli.url, args).await;
        }
        Command::Doctor(args) => return doctor::doctor(&cli.tls, &cli.url, args).await,
        Command::Dev(args) => return dev::dev(args).await,
        Command::Completions(args) => return pages::completions(args),
        Command::Man(args) => return pages::man(args),
        _ => {}
    }
    // A user watches the screen: an early error is better than long retries.
    let builder = connect::builder(&cli.tls)?.retry_for(Duration::from_secs(3));
    let client = builder.connect(&cli.url).await;
    let client = client.map_err(|error| Failure::unreachable(&cli.url, &error))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut ending = Ending::Code(0);
    match &cli.command {
        Command::Ls(args) => show::ls(&client, args, &mut out).await?,
        Command::Info(args) => show::info(&client, args, &mut out).await?,
        Command::Waiters(args) => show::waiters(&client, args, &mut out).await?,
        Command::Break(args) => free::break_hold(&client, args, &mut out).await?,
        Command::Unblock(args) => free::unblock(&client, args, &mut out).await?,
        Command::Log(args) => log::log(&client, args, &mut out).await?,
        Command::Why(args) => waits::why(&client, args, &mut out).await?,
        Command::Graph(args) => waits::graph(&client, args, &mut out).await?,
        Command::Watch(args) => watch::watch(&client, args, &mut out).await?,
        Command::Top(args) => ending = top::top(&client, args, &mut out).await?,
        Command::Run(_)
        | Command::Metrics(_)
        | Command::Exporter(_)
        | Command::Ping(_)
        | Command::Doctor(_)
        | Command::Dev(_)
        | Command::Completions(_)
        | Command::Man(_) => {}
    }
    out.flush()?;
    Ok(ending)
}

/// Writes a message for people in one piece, because others write to the same output. Not `eprintln!`: that panics if
/// the reader has gone.
fn say(text: &str) {
    let _ = io::stderr().write_all(format!("dlock: {text}\n").as_bytes());
}

/// Ends as if the signal had not been caught: shells distinguish an interrupt from an exit code.
fn end_by(signal: Signal) -> ExitCode {
    let number = signal as i32;
    // It returns only if it fails.
    let _ = signal_hook::low_level::emulate_default_handler(number);
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
