-- The states of targets in one hash, changed by compare and set; the machine is domain/targets.py.
-- KEYS: the hash of states by target
-- ARGV: verb (all|one|swap), target, the state as it was read ('' if there is none), the new state ('' removes it)
local clock = redis.call('TIME')
local now = clock[1] .. '.' .. string.format('%06d', tonumber(clock[2]))
if ARGV[1] == 'all' then
  local found = redis.call('HGETALL', KEYS[1])
  table.insert(found, 1, now)
  return found
end
local held = redis.call('HGET', KEYS[1], ARGV[2]) or ''
if ARGV[1] == 'one' then return {now, held} end
-- Race: another process changed the target between our reading and this step; the caller reads again.
if held ~= ARGV[3] then return 0 end
if ARGV[4] == '' then redis.call('HDEL', KEYS[1], ARGV[2]) else redis.call('HSET', KEYS[1], ARGV[2], ARGV[4]) end
return 1
