//! The environment of the measurement.

use std::{fs, process::Command, thread};

use crate::support::{Reply as _, Server};

/// A warning if other processes load this machine now: they would add delays and stalls.
pub fn busy() -> Option<String> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let last_minute: f64 = load.split(' ').next()?.parse().ok()?;
    let limit = 0.25 * thread::available_parallelism().map_or(1, usize::from) as f64;
    (last_minute > limit).then(|| {
        format!("warning: this machine is not idle (load {last_minute}), the numbers will show it")
    })
}

/// Machine, system, server and allocator in one line each.
pub fn describe() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let virtual_machine =
        fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" hypervisor"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let rustc = Command::new("rustc").arg("--version").output().map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let server = Server::with(&[]).without_module().start();
    let name = server.info("server");
    let version = match name.get("valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => format!("Redis {}", name["redis_version"]),
    };
    let allocator = &server.info("memory")["mem_allocator"];
    assert_eq!(server.cmd(&["PING"]).show(), "PONG");
    format!(
        "{}, {cores} cores{}, Linux {}; {version} with {allocator}; {rustc}",
        cpu.unwrap_or_else(|| "a processor of unknown kind".to_owned()),
        if virtual_machine { " of a virtual machine" } else { "" },
        kernel.trim(),
    )
}
