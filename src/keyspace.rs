//! The machine's port to the keys of the server.

use dlock_core::machine::Lost;
use dlock_core::resource::Resource;
use dlock_core::store::{Key, Slot, Store};

use crate::ffi::{Content, Ctx, KeyHandle, Mode, Name, OwnedName, TypeIndex, Value};
use crate::inbox::{self, Notice};

/// Index of the type of re-entrant locks, among the types that `ffi` registers.
pub const LOCK_TYPE: TypeIndex = 0;

/// The keys of the server, for one operation. Keeps the key that was used last open, because most
/// operations use only one.
pub struct Keys<'a> {
    ctx: Ctx<'a>,
    mode: Mode,
    /// The key that the running command names, as the server's own string.
    own: Option<(u32, Name<'a>)>,
    open: Option<Open<'a>>,
}

struct Open<'a> {
    db: u32,
    name: Box<[u8]>,
    is_own: bool,
    handle: KeyHandle<'a>,
}

impl<'a> Keys<'a> {
    /// All keys; `own` is the one that the running command names.
    pub fn new(ctx: Ctx<'a>, mode: Mode, own: Option<(u32, Name<'a>)>) -> Self {
        Self { ctx, mode, own, open: None }
    }

    fn is_own(&self, key: Key<'_>) -> bool {
        self.own.is_some_and(|(db, name)| db == key.db && name.bytes() == key.name)
    }

    /// The handle of `key`, opened if it is not open; `None` if there is no such database.
    fn open(&mut self, key: Key<'_>) -> Option<&mut KeyHandle<'a>> {
        let is_own = self.is_own(key);
        let is_open = self.open.as_ref().is_some_and(|open| {
            if is_own { open.is_own } else { open.db == key.db && *open.name == *key.name }
        });
        if !is_open {
            // Closed first: two handles on one key are a mistake.
            self.open = None;
            let handle = match self.own {
                Some((db, name)) if is_own => {
                    self.ctx.with_db(db, |ctx| KeyHandle::open(ctx, name, self.mode))
                }
                _ => self.ctx.with_db(key.db, |ctx| {
                    KeyHandle::open(ctx, OwnedName::new(key.name).name(), self.mode)
                }),
            }?;
            let name = if is_own { Box::default() } else { key.name.into() };
            self.open = Some(Open { db: key.db, name, is_own, handle });
        }
        self.open.as_mut().map(|open| &mut open.handle)
    }
}

impl Store for Keys<'_> {
    fn get(&mut self, key: Key<'_>) -> Slot<'_> {
        match self.open(key).map(KeyHandle::content) {
            None | Some(Content::Missing) => Slot::Missing,
            Some(Content::Here(LOCK_TYPE, resource)) => Slot::Here(resource),
            Some(Content::Foreign | Content::Here(..)) => Slot::Foreign,
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        if let Some(handle) = self.open(key) {
            let is_set = handle.set(LOCK_TYPE, resource);
            debug_assert!(is_set, "keys are only put through handles that can write");
        }
    }

    fn remove(&mut self, key: Key<'_>) {
        if let Some(handle) = self.open(key) {
            removing(|| handle.delete());
        }
    }

    fn is_empty(&mut self, db: u32) -> bool {
        self.ctx.db_size(db) == Some(0)
    }

    fn persist(&mut self, key: Key<'_>) {
        if let Some(handle) = self.open(key) {
            handle.clear_expire();
        }
    }
}

/// Set while we remove a key ourselves: the server tells us of that too.
static REMOVING: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn removing(remove: impl FnOnce() -> bool) {
    use std::sync::atomic::Ordering::Relaxed;
    /// Taken back also if the server's callback panics in between.
    struct Removing;
    impl Drop for Removing {
        fn drop(&mut self) {
            REMOVING.store(false, Relaxed);
        }
    }
    REMOVING.store(true, Relaxed);
    let mark = Removing;
    let removed = remove();
    drop(mark);
    debug_assert!(removed, "keys are only removed through handles that can write");
}

/// The server took a value of ours away from its key, or we did.
pub fn unlinked(db: u32, name: &[u8], value: Option<&Value>) {
    if REMOVING.load(std::sync::atomic::Ordering::Relaxed) {
        return;
    }
    crate::ffi::follow_moves();
    inbox::push(Notice::Unlinked { db, name: name.into(), lost: value.map(Lost::of) });
}
