//! The usual alternatives on a plain server: scripts of client libraries. Those of the plain lock are in `cpu`.
//!
//! Times are in milliseconds; `now` is the client's clock, because these recipes trust it.

/// The unlock of the recipe in the documentation of the servers, after SET NX PX: deletes the lock if its owner is
/// unchanged. KEYS: lock. ARGV: owner.
pub const COMPARE_AND_DELETE: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0";

/// A lock with service in order of arrival: a hash, a list of waiters, and a sorted set with the timeout of each
/// waiter.
///
/// KEYS: lock, list, set. ARGV: lease, owner, now, timeout of a waiter at the head. Nil: granted; else the time to
/// wait.
pub const FAIR_LOCK: &str = "\
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if not first then break end
  local given_up = redis.call('zscore', KEYS[3], first)
  if given_up and tonumber(given_up) > tonumber(ARGV[3]) then break end
  redis.call('zrem', KEYS[3], first)
  redis.call('lpop', KEYS[2])
end
local first = redis.call('lindex', KEYS[2], 0)
if redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  for _, waiter in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
    redis.call('zincrby', KEYS[3], -tonumber(ARGV[4]), waiter)
  end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
local mine = redis.call('zscore', KEYS[3], ARGV[2])
if mine then
  return tonumber(mine) - tonumber(ARGV[4]) - tonumber(ARGV[3])
end
local last = redis.call('lindex', KEYS[2], -1)
local ahead
if last then
  ahead = tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[3])
else
  ahead = redis.call('pttl', KEYS[1])
end
redis.call('zadd', KEYS[3], ahead + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2])
redis.call('rpush', KEYS[2], ARGV[2])
return ahead";

/// Its unlock, which wakes the next waiter by the waiter's channel. KEYS: lock, list, set, channel. ARGV: message,
/// lease, owner, now.
pub const FAIR_UNLOCK: &str = "\
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if not first then break end
  local given_up = redis.call('zscore', KEYS[3], first)
  if given_up and tonumber(given_up) > tonumber(ARGV[4]) then break end
  redis.call('zrem', KEYS[3], first)
  redis.call('lpop', KEYS[2])
end
if redis.call('exists', KEYS[1]) == 1 then
  if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
  end
  if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 0
  end
  redis.call('del', KEYS[1])
end
local next = redis.call('lindex', KEYS[2], 0)
if next then
  redis.call('publish', KEYS[4] .. ':' .. next, ARGV[1])
end
return 1";

/// A semaphore whose permits have leases: a counter of free permits, and a sorted set of permits by the end of their
/// lease. The clients agree on the capacity and create it on first use.
///
/// KEYS: counter, set, channel. ARGV: number of permits to take, permit, end of its lease, now. Nil: none is free.
pub const PERMIT_TAKE: &str = "\
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[4], 'limit', 0, ARGV[1])
if #ended > 0 then
  redis.call('zrem', KEYS[2], unpack(ended))
  local free = redis.call('incrby', KEYS[1], #ended)
  if tonumber(free) > 0 then
    redis.call('publish', KEYS[3], free)
  end
end
local free = redis.call('get', KEYS[1])
if free and tonumber(free) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  redis.call('zadd', KEYS[2], ARGV[3], ARGV[2])
  return ARGV[2]
end
return nil";

/// Releases such a permit. KEYS: counter, set, channel. ARGV: permit, now.
pub const PERMIT_GIVE: &str = "\
local ended = redis.call('zscore', KEYS[2], ARGV[1])
redis.call('zrem', KEYS[2], ARGV[1])
if not ended or tonumber(ended) <= tonumber(ARGV[2]) then
  return 0
end
local free = redis.call('incrby', KEYS[1], 1)
redis.call('publish', KEYS[3], free)
return 1";

/// A read-write lock: a hash with the mode and the count of each owner, and one key for the lease of each read hold.
///
/// KEYS: lock, prefix of the lease keys. ARGV: lease, owner, the owner as a writer.
pub const READ_LOCK: &str = "\
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[3]) == 1 then
  local count = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  local key = KEYS[2] .. ':' .. count
  redis.call('set', key, 1)
  redis.call('pexpire', key, ARGV[1])
  local left = redis.call('pttl', KEYS[1])
  redis.call('pexpire', KEYS[1], math.max(left, ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS: lock, channel, prefix of the lease keys. ARGV: message, owner.
pub const READ_UNLOCK: &str = "\
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('publish', KEYS[2], ARGV[1])
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if count == 0 then
  redis.call('hdel', KEYS[1], ARGV[2])
end
redis.call('del', KEYS[3] .. ':' .. (count + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1";

/// KEYS: lock. ARGV: lease, the owner as a writer.
pub const WRITE_LOCK: &str = "\
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('hset', KEYS[1], 'mode', 'write')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS: lock, channel. ARGV: message, lease, the owner as a writer.
pub const WRITE_UNLOCK: &str = "\
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('publish', KEYS[2], ARGV[1])
  return 1
end
if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('hdel', KEYS[1], ARGV[3])
if redis.call('hlen', KEYS[1]) == 1 then
  redis.call('del', KEYS[1])
  redis.call('publish', KEYS[2], ARGV[1])
else
  redis.call('hset', KEYS[1], 'mode', 'read')
end
return 1";

/// A latch: a counter, and a channel that announces its opening. KEYS: counter, channel. ARGV: message, count.
pub const LATCH_SET: &str = "\
if redis.call('exists', KEYS[1]) == 1 then
  return 0
end
redis.call('set', KEYS[1], ARGV[2])
redis.call('publish', KEYS[2], ARGV[1])
return 1";

/// KEYS: counter, channel. ARGV: message.
pub const LATCH_DOWN: &str = "\
local left = redis.call('decr', KEYS[1])
if left <= 0 then
  redis.call('del', KEYS[1])
end
if left == 0 then
  redis.call('publish', KEYS[2], ARGV[1])
end
return left";

/// Several locks at once, all or none: each is a hash as in the plain lock. KEYS: locks. ARGV: lease, owner. 1:
/// granted.
pub const ALL_LOCK: &str = "\
for _, key in ipairs(KEYS) do
  if redis.call('exists', key) == 1 and redis.call('hexists', key, ARGV[2]) == 0 then
    return 0
  end
end
for _, key in ipairs(KEYS) do
  redis.call('hincrby', key, ARGV[2], 1)
  redis.call('pexpire', key, ARGV[1])
end
return 1";

/// KEYS: locks. ARGV: prefix of their channels, message, lease, owner. Returns the number of held locks.
pub const ALL_UNLOCK: &str = "\
local held = 0
for _, key in ipairs(KEYS) do
  if redis.call('hexists', key, ARGV[4]) == 1 then
    held = held + 1
    if redis.call('hincrby', key, ARGV[4], -1) > 0 then
      redis.call('pexpire', key, ARGV[3])
    else
      redis.call('del', key)
      redis.call('publish', ARGV[1] .. key, ARGV[2])
    end
  end
end
return held";
