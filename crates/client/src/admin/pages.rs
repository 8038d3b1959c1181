//! The keys of the servers, page by page.

use std::sync::Arc;

use dlock_wire::reply::Kind;

use super::{Admin, Entry, PAGE};
use crate::error::Error;
use crate::reply::read;
use crate::route::Server;

/// The locks, semaphores and latches that match a pattern, page by page: see [`Admin::pages`].
pub struct Pages {
    admin: Admin,
    pattern: Vec<u8>,
    /// What is left to read, the next one last.
    rest: Vec<(Arc<Server>, Kind)>,
    cursor: Vec<u8>,
}

impl Admin {
    /// As [`Admin::locks`], but a page at a time and in no order, so that the memory does not grow with the number of
    /// keys. A key may come twice.
    ///
    /// ```
    #[doc = example!()]
    /// let guard = client.lock("door").acquire().await?;
    /// let mut pages = client.admin().pages(b"*");
    /// let mut found = Vec::new();
    /// while let Some(page) = pages.next().await? {
    ///     found.extend(page);
    /// }
    /// assert_eq!(found.len(), 1);
    /// # guard.release().await?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn pages(&self, pattern: &[u8]) -> Pages {
        let servers = self.core.routes.servers();
        let kinds =
            |server: Arc<Server>| Kind::ALL.into_iter().map(move |kind| (server.clone(), kind));
        let mut rest: Vec<_> = servers.into_iter().flat_map(kinds).collect();
        rest.reverse();
        Pages { admin: self.clone(), pattern: pattern.to_vec(), rest, cursor: b"0".to_vec() }
    }
}

impl Pages {
    /// The next page, which may be empty. None: that was all.
    #[doc = errors_as!("all calls: see [`Admin`]")]
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, Error> {
        let Some((server, kind)) = self.rest.last() else { return Ok(None) };
        let mut page = redis::cmd("SCAN");
        page.arg(&self.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(PAGE);
        page.arg("TYPE").arg(kind.key_type());
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = read(self.admin.ask(server, &page).await?)?;
        let found = keys.into_iter().map(|key| Entry { key, kind: *kind }).collect();
        if next == b"0" {
            self.rest.pop();
        }
        self.cursor = next;
        Ok(Some(found))
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("left", &self.rest.len()).finish_non_exhaustive()
    }
}
