//! The machine's port to the keys of the server.

use dlock_core::machine::Lost;
use dlock_core::resource::Resource;
use dlock_core::store::{Key, Reach, Slot, Store};

use crate::cluster;
use crate::ffi::{
    Args, Content, Ctx, KeyHandle, Level, Mode, Name, OwnedName, Value, Verdict, log,
};
use crate::inbox::{self, Notice};
use crate::{persist, shell};

/// The keys that the running command names, as the server's own strings: they need no copy.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    db: u32,
    args: Args<'a>,
    /// Which argument is the first key; the others follow it.
    first: usize,
    keys: &'a [&'a [u8]],
}

impl<'a> Named<'a> {
    /// `keys` are those of `args` that begin with number `first`, in database `db`.
    pub fn new(db: u32, args: Args<'a>, first: usize, keys: &'a [&'a [u8]]) -> Self {
        Self { db, args, first, keys }
    }

    /// No keys.
    pub fn none() -> Self {
        Self { db: 0, args: Args::default(), first: 0, keys: &[] }
    }

    /// The string of the first key.
    pub fn first(&self) -> Option<Name<'a>> {
        if self.keys.is_empty() { None } else { self.name(0) }
    }

    /// Which of them `key` is, if they are used [in turn](in_turn); for one that is not found, the caller makes a
    /// string. One that is found is of the selected database.
    #[inline]
    pub fn find(&self, key: Key<'_>, last: usize) -> Option<usize> {
        if key.db != self.db {
            return None;
        }
        in_turn(last, |at| self.keys.get(at).is_some_and(|name| is_same(name, key.name)))
    }

    /// The string of the key that [`Named::find`] found.
    #[inline]
    pub fn name(&self, at: usize) -> Option<Name<'a>> {
        self.args.name(self.first + at)
    }
}

/// Where something is in a list whose elements are used one after the other, some of them twice: at `last`, at the
/// next place, or at the very first.
#[inline]
pub fn in_turn(last: usize, is_at: impl Fn(usize) -> bool) -> Option<usize> {
    if is_at(last) {
        return Some(last);
    }
    [last + 1, 0].into_iter().find(|&at| is_at(at))
}

/// Whether two names are equal. They mostly are one: the machine passes on what the command was parsed into.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    std::ptr::eq(one, other) || one == other
}

/// Which keys may be touched. Inside a command, newer servers in cluster mode look every key up in the dictionary of
/// the running command's slot; in the tick no command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All keys: in the tick, and without a cluster.
    Everywhere,
    /// In a command of a cluster: only keys of the slot of its keys. `None`: it names no key, so there are none.
    Command(Option<u16>),
}

impl Scope {
    /// Of a command that names `keys`, which share a slot.
    pub fn of_command(is_cluster: bool, keys: &[&[u8]]) -> Self {
        if is_cluster {
            Self::Command(keys.first().map(|key| cluster::slot(key)))
        } else {
            Self::Everywhere
        }
    }

    /// Whether the key `name` may be touched.
    pub fn reaches(self, name: &[u8]) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Command(slot) => slot == Some(cluster::slot(name)),
        }
    }
}

/// The keys of the server, for one operation. Keeps the key that was used last open, because most
/// operations use only one.
pub struct Keys<'a> {
    ctx: Ctx<'a>,
    mode: Mode,
    scope: Scope,
    named: Named<'a>,
    /// Which of the named keys was used last.
    last: usize,
    /// The slot that the server was last asked for, and whether its missing keys may be on another node.
    asked: Option<(u16, bool)>,
    open: Option<Open<'a>>,
}

struct Open<'a> {
    key: OpenKey,
    handle: KeyHandle<'a>,
}

/// Which key is open.
enum OpenKey {
    /// One that the running command names.
    Named(usize),
    /// Another one: its database, and the server's string for its name.
    Other(u32, OwnedName),
}

impl OpenKey {
    fn is_other(&self, key: Key<'_>) -> bool {
        matches!(self, Self::Other(db, name) if *db == key.db && name.name().bytes() == key.name)
    }
}

impl<'a> Keys<'a> {
    /// The keys of `scope`; `named` are those that the running command names.
    pub fn new(ctx: Ctx<'a>, mode: Mode, scope: Scope, named: Named<'a>) -> Self {
        Self { ctx, mode, scope, named, last: 0, asked: None, open: None }
    }

    /// Whether `key` may be touched: the server has let the keys that the command names pass.
    #[inline]
    fn may_touch(&self, key: Key<'_>) -> bool {
        let is_in = self.scope == Scope::Everywhere
            || self.named.find(key, self.last).is_some()
            || self.scope.reaches(key.name);
        if !is_in {
            debug_assert!(false, "a key of another slot in a command");
            log(Level::Warning, "bug in dlock: a command asked for a key of another slot");
        }
        is_in
    }

    /// Whether `key`, which is missing, may be on another node: in a cluster, while its slot moves or when it has moved.
    /// Not a key that the command names: of those the server itself has found that they are to be served here.
    fn may_be_elsewhere(&mut self, key: Key<'_>) -> bool {
        if self.named.find(key, self.last).is_some() {
            return false;
        }
        let slot = cluster::slot(key.name);
        if let Some((_, answer)) = self.asked.filter(|(asked, _)| *asked == slot) {
            return answer;
        }
        // Closed first: the server looks at the key, too.
        self.open = None;
        let is_away =
            self.ctx.accepts_writes(key.name) == Verdict::NotOurSlot && self.ctx.knows_its_slots();
        self.asked = Some((slot, is_away));
        is_away
    }

    /// The handle of `key`, opened if it is not open; `None` if it may not be touched, or there is no such database.
    #[inline]
    fn open(&mut self, key: Key<'_>) -> Option<&mut KeyHandle<'a>> {
        match self.named.find(key, self.last) {
            Some(at) => self.open_named(at),
            None => self.open_other(key),
        }
    }

    /// [`Keys::open`] for a key that the command names.
    fn open_named(&mut self, at: usize) -> Option<&mut KeyHandle<'a>> {
        self.last = at;
        if !matches!(&self.open, Some(Open { key: OpenKey::Named(open), .. }) if *open == at) {
            // Closed first: two handles on one key are a mistake.
            self.open = None;
            let handle = KeyHandle::open(self.ctx, self.named.name(at)?, self.mode);
            self.open = Some(Open { key: OpenKey::Named(at), handle });
        }
        self.open.as_mut().map(|open| &mut open.handle)
    }

    /// [`Keys::open`] for any other key.
    fn open_other(&mut self, key: Key<'_>) -> Option<&mut KeyHandle<'a>> {
        if !self.may_touch(key) {
            return None;
        }
        if !self.open.as_ref().is_some_and(|open| open.key.is_other(key)) {
            self.open = None;
            let name = OwnedName::new(key.name);
            let handle =
                self.ctx.with_db(key.db, |ctx| KeyHandle::open(ctx, name.name(), self.mode))?;
            self.open = Some(Open { key: OpenKey::Other(key.db, name), handle });
        }
        self.open.as_mut().map(|open| &mut open.handle)
    }
}

impl Store for Keys<'_> {
    fn reach(&self) -> Reach {
        match self.scope {
            Scope::Everywhere => Reach::Everywhere,
            Scope::Command(_) => Reach::OneSlot,
        }
    }

    fn reaches(&self, key: Key<'_>) -> bool {
        self.scope.reaches(key.name)
    }

    fn get(&mut self, key: Key<'_>) -> Slot<'_> {
        if !self.may_touch(key) {
            return Slot::OutOfReach;
        }
        if shell::is_cluster()
            && matches!(self.open(key).map(KeyHandle::content), None | Some(Content::Missing))
            && self.may_be_elsewhere(key)
        {
            return Slot::Elsewhere;
        }
        match self.open(key).map(KeyHandle::content) {
            None | Some(Content::Missing) => Slot::Missing,
            // Anything else would be damage: we put no value under the type of another family.
            Some(Content::Here(index, resource)) if index == resource.kind() as usize => {
                Slot::Here(resource)
            }
            Some(Content::Foreign | Content::Here(..)) => Slot::Foreign,
        }
    }

    fn put(&mut self, key: Key<'_>, resource: Resource) {
        if let Some(handle) = self.open(key) {
            let is_set = handle.set(resource.kind() as usize, resource);
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
    if is_removing() {
        return;
    }
    crate::ffi::follow_moves();
    let lost = value.map(|value| {
        // A large one is not copied: it comes when the server frees it.
        if persist::is_large(value) { Lost::of_large(value) } else { Lost::of(value) }
    });
    inbox::push(Notice::Unlinked { db, name: name.into(), lost });
}

/// The server has freed a large value on the main thread. Gives it back if nothing is left to do for it.
pub fn freed(value: Box<Value>) -> Option<Box<Value>> {
    if is_removing() {
        inbox::push(Notice::Freed(value));
        return None;
    }
    inbox::bring(value)
}

fn is_removing() -> bool {
    REMOVING.load(std::sync::atomic::Ordering::Relaxed)
}
