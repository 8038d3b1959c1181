//! The lock of the usual client libraries, reimplemented: two scripts.

/// Lock of the usual client libraries: a hash that counts the holds of each owner. KEYS: lock. ARGV: lease, owner.
pub const LOCK: &str = "\
local free = redis.call('exists', KEYS[1]) == 0
if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// Its unlock, which tells the waiters through a channel. KEYS: lock, channel. ARGV: message, lease, owner.
pub const UNLOCK: &str = "\
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1";
