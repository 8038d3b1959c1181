//! The arguments of `dlock size`.

use std::time::Duration;

use clap::Args;

use super::time::lease;

/// `dlock size`
#[derive(Debug, Args)]
#[command(override_usage = "dlock size [OPTIONS]", after_help = SIZE_HELP)]
pub struct Size {
    /// Client processes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number())]
    pub processes: u64,

    /// More connections of each process, for latches, several locks at once, observers
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub dedicated: u64,

    /// Locks, permits and read holds held at the same time
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub held: u64,

    /// Semaphores, latches and other keys without a hold
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub keys: u64,

    /// Tasks that wait at the same time with QUEUE
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub queued: u64,

    /// Tasks that wait at the same time in a DFAIR queue
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub fair: u64,

    /// Tasks that wait at the same time with BLOCK: a connection each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub blocked: u64,

    /// Pairs of acquire and release per second
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub rate: u64,

    /// Percentage of these pairs that are granted after waiting
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(..=100))]
    pub contended: u8,

    /// Held locks that are renewed: those of long work
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number())]
    pub renewed: u64,

    /// Their lease; they are renewed three times in it
    #[arg(long, value_name = "DURATION", default_value = "30", value_parser = lease)]
    pub lease: Duration,

    /// The server has an append-only file
    #[arg(long)]
    pub aof: bool,

    /// Requests have no REQID (those of the Rust client and of dlock have)
    #[arg(long)]
    pub no_request_ids: bool,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Products of these with each other and with the figures fit into 64 bits.
fn number() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(..=1_000_000_000)
}

const SIZE_HELP: &str = "\
Computes; asks no server. The figures were measured on one machine, with keys of 20 bytes and owners of 36 bytes: \
others differ. Memory of the empty server and of a fork comes on top.

Example:
  dlock size --processes 40 --held 1500 --queued 500 --rate 3000 --contended 25 --renewed 200 --aof";
