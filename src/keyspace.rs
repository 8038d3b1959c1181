//! The core's access to the keys of the server.

use dlock_core::base::key::Key;
use dlock_core::base::shares::User;
use dlock_core::ports::lost::Lost;
use dlock_core::ports::store::{Lookup, Reach, Store};
use dlock_core::tables::queues::WaitQueues;
use dlock_core::value::resource::Resource;
use dlock_wire::reply::{self, quote};

use crate::ffi::{
    self, Args, Content, Ctx, KeyHandle, Level, Mode, Name, OwnedName, Value, Verdict, log,
};
use crate::inbox::{self, Address, Notice};
use crate::shell;
use crate::slot::slot;

/// The arguments of a call that are keys.
#[derive(Clone, Copy, Default)]
pub struct KeyArgs<'a> {
    /// All arguments.
    pub args: Args<'a>,
    /// Index of the first key; the other keys follow it.
    pub first: usize,
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// The name of the command.
    pub command: &'static str,
}

impl<'a> KeyArgs<'a> {
    /// The keys of a call in database `db`, and those that it may access.
    pub fn in_db(self, db: u32) -> Reached<'a> {
        (Named { db, args: self }, Scope::of_command(self.keys))
    }
}

/// The keys that the running command names, as the server's own strings, so that no copy is needed.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    db: u32,
    args: KeyArgs<'a>,
}

impl<'a> Named<'a> {
    /// No keys.
    pub fn none() -> Self {
        Self { db: 0, args: KeyArgs::default() }
    }

    /// What is wrong with the type of a key: the family of the value or of the waiters there, and that of the command.
    #[cold]
    pub fn wrong_type(&self, waits: &WaitQueues, store: &mut dyn Store) -> String {
        const TEXT: &str = "Operation against a key holding the wrong kind of value";
        let own = self.args.command.split('.').next().unwrap_or_default();
        for name in self.args.keys {
            let key = Key { db: self.db, name };
            let family = match store.get(key) {
                Lookup::Here(resource) => Some(resource.kind()),
                Lookup::Missing => waits.queue_of(key).and_then(|id| Some(waits.queue(id)?.kind)),
                Lookup::WrongType => {
                    return format!("{TEXT}: {} holds nothing of dlock", quote(name));
                }
                Lookup::Elsewhere | Lookup::OutOfReach => None,
            };
            let family = family.map(|kind| reply::Kind::from(kind).name().to_uppercase());
            if let Some(family) = family.filter(|family| family != own) {
                return format!(
                    "{TEXT}: {} belongs to {family}, the command to {own}",
                    quote(name)
                );
            }
        }
        TEXT.to_owned()
    }

    /// The string of the first key.
    pub fn first(&self) -> Option<Name<'a>> {
        if self.args.keys.is_empty() { None } else { self.name(0) }
    }

    /// Index of `key`, if the keys are used [in turn](in_turn). For a key that is not found, the caller makes a
    /// string. A key that is found is in the selected database.
    #[inline]
    pub fn find(&self, key: Key<'_>, last: usize) -> Option<usize> {
        if key.db != self.db {
            return None;
        }
        in_turn(last, |at| self.args.keys.get(at).is_some_and(|name| is_same(name, key.name)))
    }

    /// The string of the key that [`Named::find`] found.
    #[inline]
    pub fn name(&self, at: usize) -> Option<Name<'a>> {
        self.args.args.name(self.args.first + at)
    }
}

/// Index of a value in a list of elements that are used in order, some of them twice. Tries only `last`, the index
/// after it, and the first index.
#[inline]
pub fn in_turn(last: usize, is_at: impl Fn(usize) -> bool) -> Option<usize> {
    if is_at(last) {
        return Some(last);
    }
    [last + 1, 0].into_iter().find(|&at| is_at(at))
}

/// Whether two names are equal. Mostly they are the same slice: the machine passes on the parsed command's names.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    std::ptr::eq(one, other) || one == other
}

/// The keys that may be accessed. Inside a command in cluster mode, newer servers look up every key in the dictionary
/// of that command's slot. In the tick no command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All keys: in the tick, and outside a cluster.
    Everywhere,
    /// In a command of a cluster: only keys in the slot of its keys. `None`: the command names no key, so no key is
    /// allowed.
    Command(Option<u16>),
}

impl Scope {
    /// The scope of a command that names `keys`, which share a slot.
    pub fn of_command(keys: &[&[u8]]) -> Self {
        if ffi::is_cluster() {
            Self::Command(keys.first().map(|key| slot(key)))
        } else {
            Self::Everywhere
        }
    }

    /// Whether the key `name` may be accessed.
    pub fn reaches(self, name: &[u8]) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Command(only) => only == Some(slot(name)),
        }
    }
}

/// The keys that the running command names, and the keys that it may access.
pub type Reached<'a> = (Named<'a>, Scope);

/// The keys of the server, for one operation. Keeps the last used key open, because most operations use only one.
pub struct Keys<'a> {
    ctx: Ctx<'a>,
    mode: Mode,
    scope: Scope,
    named: Named<'a>,
    /// Index of the named key that was used last.
    last: usize,
    /// The slot that the server was last asked about, whether for a missing key, and the answer.
    asked: Option<(u16, bool, bool)>,
    /// The ACL user of the caller, where it counts.
    user: User,
    /// There is a caller, and it has an ACL user.
    has_user: bool,
    open: Option<Open<'a>>,
}

struct Open<'a> {
    key: OpenKey,
    handle: KeyHandle<'a>,
}

/// Which key is open.
enum OpenKey {
    /// A key opened by [`Store::peek`], which nothing else may use.
    Peeked,
    /// A key that the running command names.
    Named(usize),
    /// Any other key: its database, and the server's string for its name.
    Other(u32, OwnedName),
}

impl OpenKey {
    fn is_other(&self, key: Key<'_>) -> bool {
        matches!(self, Self::Other(db, name) if *db == key.db && name.name().bytes() == key.name)
    }
}

impl<'a> Keys<'a> {
    /// The keys of `scope`; `named` are the keys that the running command names.
    pub fn new(ctx: Ctx<'a>, mode: Mode, scope: Scope, named: Named<'a>) -> Self {
        let (user, has_user) = (User::UNKNOWN, false);
        Self { ctx, mode, scope, named, last: 0, asked: None, user, has_user, open: None }
    }

    /// The keys for an operation of this ACL user, if it counts; `has_user`: the caller has one.
    pub fn of_user(self, user: User, has_user: bool) -> Self {
        Self { user, has_user, ..self }
    }

    /// Whether `key` may be accessed. The server has already admitted the keys that the command names.
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

    /// In a cluster: whether the server says that this node does not serve `key`, which is missing or not. False for
    /// keys that the command names: the server has already checked them. A replica decides nothing.
    fn is_elsewhere(&mut self, key: Key<'_>, is_missing: bool) -> bool {
        let ctx = self.ctx;
        if self.named.find(key, self.last).is_some() || !ctx.flags().primary() {
            return false;
        }
        let slot = slot(key.name);
        let asked = self.asked.filter(|asked| (asked.0, asked.1) == (slot, is_missing));
        if let Some((.., answer)) = asked {
            return answer;
        }
        // Closed first: the server accesses the key, too.
        self.open = None;
        let answer = ctx.accepts_writes(key.name) == Verdict::NotOurSlot
            && ctx.knows_its_slots()
            && (is_missing || !ctx.imports(key.name));
        self.asked = Some((slot, is_missing, answer));
        answer
    }

    /// The handle of `key`, opened if necessary; `None` if the key may not be accessed or the database does not
    /// exist.
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
            // Closed first: opening a key twice is an error.
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

    fn user(&self) -> User {
        self.user
    }

    fn caller(&self) -> User {
        if self.has_user { self.ctx.user() } else { self.user }
    }

    fn may_read(&self, key: Key<'_>) -> bool {
        // In the tick there is no caller.
        self.named.find(key, self.last).is_some()
            || (self.named.first().is_some() && self.ctx.may_read(key.name))
    }

    fn is_away(&mut self, key: Key<'_>) -> bool {
        // The slot of a command is served, or is being imported.
        self.scope == Scope::Everywhere
            && ffi::is_cluster()
            && matches!(self.open(key).map(KeyHandle::content), Some(Content::Here(..)))
            && self.is_elsewhere(key, false)
    }

    fn get(&mut self, key: Key<'_>) -> Lookup<'_> {
        if !self.may_touch(key) {
            return Lookup::OutOfReach;
        }
        if ffi::is_cluster()
            && matches!(self.open(key).map(KeyHandle::content), None | Some(Content::Missing))
            && self.is_elsewhere(key, true)
        {
            return Lookup::Elsewhere;
        }
        match self.open(key).map(KeyHandle::content) {
            None | Some(Content::Missing) => Lookup::Missing,
            // A mismatch would be damage: no value is stored under the type of another family.
            Some(Content::Here(index, resource)) if index == resource.kind() as usize => {
                Lookup::Here(resource)
            }
            Some(Content::WrongType | Content::Here(..)) => Lookup::WrongType,
        }
    }

    fn peek(&mut self, key: Key<'_>) -> Option<&Resource> {
        if !self.may_touch(key) {
            return None;
        }
        // Closed first: opening a key twice is an error.
        self.open = None;
        let name = OwnedName::new(key.name);
        let handle =
            self.ctx.with_db(key.db, |ctx| KeyHandle::open(ctx, name.name(), Mode::Peek))?;
        let open = self.open.insert(Open { key: OpenKey::Peeked, handle });
        match open.handle.content() {
            Content::Here(_, resource) => Some(resource),
            Content::Missing | Content::WrongType => None,
        }
    }

    fn take_lost(&mut self, key: Key<'_>) -> Option<Lost> {
        let is_missing = matches!(self.open(key).map(KeyHandle::content), Some(Content::Missing));
        if is_missing && !inbox::is_empty() { inbox::take_lost(key) } else { None }
    }

    fn has_lost_latch(&mut self, key: Key<'_>) -> bool {
        inbox::has_lost_latch(key)
    }

    fn forget_lost_latch(&mut self, key: Key<'_>) {
        inbox::forget_lost_latch(key);
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

    fn persist(&mut self, key: Key<'_>) {
        if let Some(handle) = self.open(key) {
            handle.clear_expire();
        }
    }
}

/// Set while the module removes a key itself, because the server reports that removal too.
static REMOVING: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn removing(remove: impl FnOnce() -> bool) {
    use std::sync::atomic::Ordering::Relaxed;
    /// A guard, so that the flag is reset even if the server's callback panics.
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

/// A value of ours left its key: the server or the module removed it.
pub fn unlinked(db: u32, name: &[u8], value: Option<&Value>) {
    if is_removing() {
        return;
    }
    crate::ffi::follow_moves();
    let key = Key { db, name };
    let lost = value.zip(shell::prints()).map(|(value, prints)| Lost::of(value, key, prints));
    let at = value.map(Address::of);
    inbox::push(Notice::Unlinked { db, name: name.into(), lost: lost.map(Box::new), at });
}

fn is_removing() -> bool {
    REMOVING.load(std::sync::atomic::Ordering::Relaxed)
}
