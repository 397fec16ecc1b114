-- The leases of many routes in one atomic step.
-- ARGV: verb (take|extend|release), lease in ms, our prefix, and MessagePack of [key, value, key, value, ...]
-- The keys come packed: as arguments of their own, five hundred of them would cost their sender more than the script.
local verb, lease, ours = ARGV[1], ARGV[2], ARGV[3]
local given = cmsgpack.unpack(ARGV[4])
local held = {}

-- A key of another type belongs to somebody else, and must not fail the batch.
local function holder(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then return 'another' end
  return found
end

for at = 1, #given, 2 do
  local key, value = given[at], given[at + 1]
  if verb == 'take' then
    if not redis.call('SET', key, value, 'NX', 'PX', lease) then
      local found = holder(key)
      -- The ledger gave this route to us: the release of our own older lease has not arrived yet.
      if found and string.sub(found, 1, #ours) == ours then
        redis.call('SET', key, value, 'PX', lease)
      else
        held[#held + 1] = (at + 1) / 2
        held[#held + 1] = redis.call('PTTL', key)
      end
    end
  elseif verb == 'extend' then
    -- A Redis that lost its data gets the lease again.
    if not redis.call('SET', key, value, 'NX', 'PX', lease) and holder(key) == value then
      redis.call('PEXPIRE', key, lease)
    end
  elseif holder(key) == value then
    redis.call('DEL', key)
  end
end
return held
