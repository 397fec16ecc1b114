-- The offset of a reader; it only advances, even when a late reader writes it.
-- KEYS: offset, count    ARGV: verb (advance|restart), entry id, entries read up to it ('' when unknown)
-- Ids are two 64-bit numbers, too large for a number in Lua: compare the digits, longer ones first.
local function digits(text)
  return (string.gsub(text, '^0+', ''))
end

local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function parts(id)
  local ms, seq = string.match(id, '^(%d+)%-?(%d*)$')
  -- No reader wrote a text that is not an id; any entry is ahead of it.
  if not ms then return '', '' end
  return digits(ms), digits(seq)
end

local function ahead(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  if a_ms ~= b_ms then return less(b_ms, a_ms) end
  return less(b_seq, a_seq)
end

local stored = redis.call('GET', KEYS[1])
if ARGV[1] == 'restart' then
  -- Only if the offset is still where the reader decided to restart: another one may have restarted and read on.
  if stored and (ahead(stored, ARGV[2]) or ahead(ARGV[2], stored)) then return stored end
  redis.call('SET', KEYS[1], '0-0')
  redis.call('SET', KEYS[2], '0-0 0')
  return '0-0'
end
if stored and not ahead(ARGV[2], stored) then return stored end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[3])
end
return ARGV[2]
