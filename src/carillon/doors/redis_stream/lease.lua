-- One active reader: KEYS: lease    ARGV: verb (take|release), token, lease in ms
-- take returns nothing when the lease is ours, otherwise the remaining ms of the other holder's lease.
local holder = redis.call('GET', KEYS[1])
if ARGV[1] == 'release' then
  if holder == ARGV[2] then redis.call('DEL', KEYS[1]) end
  return false
end
if not holder then
  redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3])
elseif holder == ARGV[2] then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
else
  return redis.call('PTTL', KEYS[1])
end
return false
