//! `dlock break` and `dlock unblock`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use dlock_admin::{Admin, Info};
use dlock_client::Client;
use serde_json::json;

use crate::args::{Break, Unblock};
use crate::exit::{Failure, NOTHING, USAGE};
use crate::{json, text};

/// `dlock break`
pub async fn break_hold(
    client: &Client,
    args: &Break,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (admin, key) = (Admin::new(client), args.key.as_bytes());
    let shown = text::quoted(key);
    let failed = |error| Failure::of(format!("cannot break {shown}"), &error);
    let Some(info) = admin.info(key).await.map_err(failed)? else {
        let failure = Failure::new(NOTHING, format!("there is no lock {shown}"));
        return Err(failure.with(json!({ "broken": 0 })));
    };
    let whose = args.whose.as_deref().map(OsStrExt::as_bytes);
    let broken = match (&info, whose) {
        (Info::Lock(_) | Info::ReadWrite(_), None) => admin.break_key(key).await,
        (Info::ReadWrite(_), Some(owner)) => admin.break_owner(key, owner).await,
        (Info::Lock(_), Some(_)) => {
            let text = format!("{shown} has one holder at most: leave OWNER out to break its hold");
            return Err(Failure::new(USAGE, text));
        }
        (Info::Semaphore(_), Some(id)) => break_permit(&admin, key, id).await,
        (Info::Semaphore(_), None) => {
            let text =
                format!("{shown} is a semaphore: name a permit (`dlock info` shows their ids)");
            return Err(Failure::new(USAGE, text));
        }
        _ => {
            let text = format!("{shown} is a latch: nobody holds it, so there is nothing to break");
            return Err(Failure::new(USAGE, text));
        }
    };
    let broken = broken.map_err(failed)?;
    if broken == 0 {
        let text = match (&info, whose) {
            (Info::Semaphore(_), Some(id)) => format!("{shown} has no permit {}", text::bytes(id)),
            (_, Some(owner)) => format!("{} does not hold {shown}", text::quoted(owner)),
            (_, None) => format!("nobody holds {shown}"),
        };
        return Err(Failure::new(NOTHING, text).with(json!({ "broken": 0 })));
    }
    if args.json {
        json::write(out, &json!({ "broken": broken }))?;
    } else {
        let what = if matches!(info, Info::Semaphore(_)) { "permit" } else { "hold" };
        writeln!(out, "broken: {} of {}", text::plural(broken, what), text::bytes(key))?;
    }
    Ok(())
}

async fn break_permit(admin: &Admin, key: &[u8], id: &[u8]) -> Result<u64, dlock_client::Error> {
    admin.break_permit(key, &String::from_utf8_lossy(id)).await.map(u64::from)
}

/// `dlock unblock`
pub async fn unblock(client: &Client, args: &Unblock, out: &mut impl Write) -> Result<(), Failure> {
    let id = args.client_id;
    let ended = Admin::new(client).unblock(id, args.error).await;
    let ended =
        ended.map_err(|error| Failure::of(format!("cannot unblock client {id}"), &error))?;
    if !ended {
        let text =
            format!("client {id} has no blocked call (its number may be that of another server)");
        return Err(Failure::new(NOTHING, text).with(json!({ "unblocked": false })));
    }
    if args.json {
        json::write(out, &json!({ "unblocked": true }))?;
    } else {
        writeln!(out, "unblocked: client {id}")?;
    }
    Ok(())
}
