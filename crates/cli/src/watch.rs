//! `dlock watch`

mod change;

use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use dlock_admin::{Admin, Info};
use dlock_client::{Client, Error, ErrorKind};
use tokio::time::sleep;

use self::change::{Change, Ended, Snapshot};
use crate::args::Watch;
use crate::exit::Failure;
use crate::{json, text};

/// Poll interval for keys whose changes the server does not report.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time until the next look.
const AWAIT_FOR: Duration = Duration::from_mins(1);

/// Prints the state of a key, and each change of it.
pub async fn watch(client: &Client, args: &Watch, out: &mut impl Write) -> Result<(), Failure> {
    let watcher = Watcher { admin: Admin::new(client), key: args.key.as_bytes() };
    let mut to = Lines { args, left: args.count.unwrap_or(u64::MAX), out };
    let mut before = None;
    let mut ended = None;
    let mut is_lost = false;
    while to.left > 0 {
        match watcher.look().await {
            Ok(now) => {
                if is_lost {
                    to.print(&Change::Back)?;
                }
                is_lost = false;
                for change in change::between(before.as_ref(), &now, ended) {
                    to.print(&change)?;
                }
                let is_same = ended.is_some()
                    && before
                        .as_ref()
                        .is_some_and(|before: &Snapshot| before.only_hold() == now.only_hold());
                ended = match to.left {
                    0 => None,
                    // The server reports the end of a hold that goes on: it is not asked again and again.
                    _ if is_same => {
                        sleep(LOOK_EVERY).await;
                        None
                    }
                    _ => watcher.wait(&now).await,
                };
                before = Some(now);
            }
            // The first look has to succeed: then the URL and the key are right.
            Err(error) if error.kind() == ErrorKind::Unavailable && before.is_some() => {
                if !is_lost {
                    to.print(&Change::Away(error.to_string()))?;
                }
                is_lost = true;
                ended = None;
                sleep(LOOK_EVERY).await;
            }
            Err(error) => {
                let shown = text::quoted(watcher.key);
                return Err(Failure::of(format!("cannot watch {shown}"), &error));
            }
        }
    }
    Ok(())
}

struct Watcher<'a> {
    admin: Admin,
    key: &'a [u8],
}

impl Watcher<'_> {
    async fn look(&self) -> Result<Snapshot, Error> {
        let info = self.admin.info(self.key).await?;
        let permits = match &info {
            Some(Info::Semaphore(_)) => self.admin.permits(self.key).await?,
            _ => Vec::new(),
        };
        Ok(Snapshot::of(self.key, info.as_ref(), &permits))
    }

    /// Returns when the next look is worthwhile; with the end of the hold, if the server reported it.
    async fn wait(&self, now: &Snapshot) -> Option<Ended> {
        if let Some((entry, token)) = now.only_hold()
            && let Ok(how) = self.admin.await_end(&entry, token, AWAIT_FOR).await
        {
            return how.map(|how| Ended { token, how });
        }
        sleep(LOOK_EVERY).await;
        None
    }
}

/// Where the changes go.
struct Lines<'a, W> {
    args: &'a Watch,
    left: u64,
    out: &'a mut W,
}

impl<W: Write> Lines<'_, W> {
    fn print(&mut self, change: &Change) -> Result<(), Failure> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.args.json {
            json::write_line(self.out, &change.as_json(self.args.key.as_bytes(), now))?;
        } else {
            writeln!(self.out, "{} {change}", text::timestamp(now))?;
        }
        Ok(self.out.flush()?)
    }
}
