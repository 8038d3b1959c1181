//! The reference page is up to date with the table.

use std::path::Path;
use std::{env, fs};

use crate::reference::{commands_md, syntax};
use crate::reply::ErrorCode;
use crate::table::COMMANDS;

#[test]
fn docs_commands_md_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = commands_md();
    if env::var_os("DLOCK_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, &page).expect("docs/commands.md can be written");
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/commands.md is out of date: run DLOCK_BLESS=1 cargo test -p dlock-wire"
    );
}

#[test]
fn syntax_lines() {
    let lines = [
        "DLOCK.ACQUIRE key owner [PX milliseconds | EX seconds] [BLOCK milliseconds] [QUEUE milliseconds] [NOTIFY channel | SNOTIFY shard-channel] \
         [REQID id] [NOREENTRY] [BIND milliseconds] [LABEL text]",
        "DLOCK.RELEASE key owner [ALL] [TOKEN token] [REQID id] [DELAY milliseconds] [DONE]",
        "DLOCK.RENEW key owner [PX milliseconds | EX seconds] [TOKEN token] [BIND milliseconds]",
        "DLOCK.CHECK key token",
        "DLOCK.FENCE key owner token",
        "DLOCK.BREAK key",
        "DLOCK.INFO key",
        "DLOCK.WAITERS key [COUNT count]",
        "DLOCK.POSITION key owner",
        "DLOCK.AWAIT key [TOKEN token] [BLOCK milliseconds] [REASON]",
        "DFAIR.ACQUIRE key owner [PX milliseconds | EX seconds] [BLOCK milliseconds] [QUEUE milliseconds] [NOTIFY channel | SNOTIFY shard-channel] \
         [REQID id] [NOREENTRY] [BIND milliseconds] [LABEL text]",
        "DFAIR.RELEASE key owner [ALL] [TOKEN token] [REQID id] [DELAY milliseconds] [DONE]",
        "DFAIR.RENEW key owner [PX milliseconds | EX seconds] [TOKEN token] [BIND milliseconds]",
        "DFAIR.CHECK key token",
        "DFAIR.FENCE key owner token",
        "DFAIR.BREAK key",
        "DFAIR.INFO key",
        "DFAIR.WAITERS key [COUNT count]",
        "DFAIR.POSITION key owner",
        "DFAIR.AWAIT key [TOKEN token] [BLOCK milliseconds] [REASON]",
        "DRW.ACQUIRE key owner <READ | WRITE> [PX milliseconds | EX seconds] [BLOCK milliseconds] [QUEUE milliseconds] \
         [NOTIFY channel | SNOTIFY shard-channel] [REQID id] [BIND milliseconds] [LABEL text]",
        "DRW.RELEASE key owner <READ | WRITE> [ALL] [TOKEN token] [REQID id] [DELAY milliseconds]",
        "DRW.RENEW key owner <READ | WRITE> [PX milliseconds | EX seconds] [TOKEN token] [BIND milliseconds]",
        "DRW.BREAK key [owner]",
        "DRW.CHECK key token",
        "DRW.INFO key",
        "DRW.WAITERS key [COUNT count]",
        "DRW.POSITION key owner",
        "DSEM.INIT key permits",
        "DSEM.RESIZE key <permits | BY delta> [REQID id]",
        "DSEM.ACQUIRE key owner [COUNT count] [LIMIT permits] [PX milliseconds | EX seconds] [BLOCK milliseconds] \
         [QUEUE milliseconds] [NOTIFY channel | SNOTIFY shard-channel] [REQID id] [BIND milliseconds] [LABEL text]",
        "DSEM.RELEASE key holder [ALL] [REQID id]",
        "DSEM.RENEW key permit-id [PX milliseconds | EX seconds] [BIND milliseconds]",
        "DSEM.TAKE key [n] [BLOCK milliseconds] [REQID id]",
        "DSEM.GIVE key [n] [REQID id]",
        "DSEM.DRAIN key [REQID id]",
        "DSEM.BREAK key permit-id",
        "DSEM.INFO key",
        "DSEM.PERMITS key",
        "DSEM.WAITERS key [COUNT count]",
        "DSEM.POSITION key owner",
        "DLATCH.INIT key count [PX milliseconds | EX seconds]",
        "DLATCH.COUNTDOWN key [n] [REQID id]",
        "DLATCH.AWAIT key [BLOCK milliseconds]",
        "DLATCH.INFO key",
        "DLATCH.WAITERS key [COUNT count]",
        "DLOCK.MACQUIRE numkeys key [key ...] owner [PX milliseconds | EX seconds] [BLOCK milliseconds] [NOTIFY channel | SNOTIFY shard-channel] \
         [REQID id] [BIND milliseconds] [LABEL text]",
        "DLOCK.MRELEASE numkeys key [key ...] owner [REQID id]",
        "DLOCK.MRENEW numkeys key [key ...] owner [PX milliseconds | EX seconds] [BIND milliseconds]",
        "DLOCK.ANYACQUIRE numkeys key [key ...] owner [PX milliseconds | EX seconds] [BLOCK milliseconds] [NOTIFY channel | SNOTIFY shard-channel] \
         [REQID id] [BIND milliseconds] [LABEL text]",
        "DLOCK.UNBLOCK <client-id [ERROR] | ABSENT-KEY key | ABSENT-USER user>",
        "DLOCK.TRUST",
        "DLOCK.LOG <GET [count] | LEN | RESET>",
        "DLOCK.APPLY key payload",
    ];
    assert_eq!(COMMANDS.len(), lines.len());
    for (command, line) in COMMANDS.iter().zip(lines) {
        assert_eq!(syntax(command), line);
    }
}

#[test]
fn the_page_tells_every_error_and_has_no_dead_links() {
    let page = commands_md();
    for code in ErrorCode::ALL {
        assert!(page.contains(&alloc::format!("`{code}`")), "{code}");
    }
    let anchors: std::vec::Vec<_> = page
        .lines()
        .filter_map(|line| {
            line.split_once("# ").filter(|(marks, _)| marks.chars().all(|mark| mark == '#'))
        })
        .map(|(_, title)| {
            let kept = title
                .chars()
                .filter(|sign| sign.is_ascii_alphanumeric() || matches!(sign, ' ' | '-'));
            alloc::format!(
                "(#{})",
                kept.collect::<alloc::string::String>().to_lowercase().replace(' ', "-")
            )
        })
        .collect();
    for (at, _) in page.match_indices("(#") {
        let link = &page[at..=at + page[at..].find(')').expect("a closed link")];
        assert!(anchors.iter().any(|anchor| anchor == link), "{link}");
    }
}
