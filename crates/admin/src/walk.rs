//! The locks of all primaries, page by page.

use std::collections::VecDeque;

use dlock_client::Error;
use dlock_client::internal::read;

use crate::{Admin, Entry, Kind};

/// How many keys a server looks at for one page of SCAN: it serves no other client meanwhile.
const PAGE: u32 = 1000;

/// The locks whose keys match a pattern, page by page: see [`Admin::walk`].
#[must_use = "call next_page"]
pub struct Walk {
    admin: Admin,
    pattern: Vec<u8>,
    /// What is left to visit, by the numbers of the servers; the first one from `cursor` on.
    left: VecDeque<(usize, Kind)>,
    cursor: Vec<u8>,
}

impl Admin {
    /// As [`Admin::locks`], for programs that do not need all of them, or not at once.
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]);
    /// let mut walk = admin.walk(b"*");
    /// while let Some(page) = walk.next_page().await? {
    ///     for entry in page {
    ///         println!("{}", entry.key.escape_ascii());
    ///         # assert_eq!(entry.key, b"door");
    ///     }
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub fn walk(&self, pattern: impl AsRef<[u8]>) -> Walk {
        let of = |(server, _)| Kind::ALL.map(|kind| (server, kind));
        let left = self.client.core().servers().into_iter().flat_map(of).collect();
        Walk {
            admin: self.clone(),
            pattern: pattern.as_ref().to_vec(),
            left,
            cursor: START.to_vec(),
        }
    }
}

const START: &[u8] = b"0";

impl Walk {
    /// The next locks, which may be none; `None`: that was all. A key may appear twice. After an error, the next page
    /// is of the next server.
    #[doc = as_all_calls!()]
    pub async fn next_page(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let Some(&(server, kind)) = self.left.front() else { return Ok(None) };
        let (next, keys) = match self.page(server, kind).await {
            Ok(page) => page,
            Err(error) => {
                self.left.retain(|(left, _)| *left != server);
                START.clone_into(&mut self.cursor);
                return Err(error);
            }
        };
        self.cursor = next;
        if self.cursor == START {
            self.left.pop_front();
        }
        Ok(Some(keys.into_iter().map(|key| Entry { key, kind }).collect()))
    }

    async fn page(&self, server: usize, kind: Kind) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
        let mut page = redis::cmd("SCAN");
        page.arg(&self.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(PAGE);
        page.arg("TYPE").arg(kind.key_type());
        read(self.admin.client.core().ask_once(server, page, true).await?)
    }
}
