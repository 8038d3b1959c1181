-- KEYS: the stock, the list of sales. ARGV: a token, how many pieces the seller saw, the seller.
-- Returns 1. Returns 0 to a seller whose lock has passed on: a later token was here. So it is with a second copy.
if tonumber(ARGV[1]) <= tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'left', ARGV[2] - 1)
redis.call('RPUSH', KEYS[2], ARGV[3] .. ' ' .. ARGV[1])
return 1
