-- The functions that the scripts of the list queue share; this text is put before each script.
-- ARGV: MessagePack of the arguments, and all texts they refer to, end to end, because a text need not be UTF-8.
local given = cmsgpack.unpack(ARGV[1])
local texts, place = ARGV[2], 1

-- The next text of the given length.
local function text_of(length)
  local text = string.sub(texts, place, place + length - 1)
  place = place + length
  return text
end

-- One clock for every process: that of the server.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000

local function failed_with(answer)
  return type(answer) == 'table' and answer.err
end

-- The one id rule, as carillon.domain.jobs.message_id has it. Redis offers no SHA-256: the caller
-- brings it as a hint under the text's SHA-1, and the answer names the texts that need one.
local function id_of(text, hints)
  local readable, message = pcall(cjson.decode, text)
  local id = readable and type(message) == 'table' and message.id
  if type(id) == 'string' and #id > 0 and #id <= 512 then return id end
  if type(id) == 'number' and id == math.floor(id) and math.abs(id) < 9007199254740992 then
    return string.format('%.0f', id)
  end
  return hints[redis.sha1hex(text)]
end

local function lock_of(queue, id)
  return 'lock:' .. queue .. ':' .. id
end

-- The holder of a lock; a key of another type counts as held.
local function holder_of(lock)
  local found = redis.pcall('GET', lock)
  if failed_with(found) then return 'another' end
  return found
end

-- A ZSET holds each member once: trailing blanks, which JSON ignores, make equal messages differ.
local blanks = {' ', '\t', '\n', '\r'}
local salt = tonumber(time[2])
local function put_off(key, score, text)
  local added = redis.pcall('ZADD', key, 'NX', score, text)
  while added == 0 do
    salt = salt + 1
    local rest, tail = salt, ''
    while rest > 0 do
      tail = tail .. blanks[rest % 4 + 1]
      rest = math.floor(rest / 4)
    end
    added = redis.pcall('ZADD', key, 'NX', score, text .. tail)
  end
  return added
end

-- Move one message from the processing list to the place that its verb names. Returns whether it was in the list, and
-- its score if it is delayed. If the target refuses it, it stays. Old messages are at the tail, so the search begins
-- there; in a list that is long because workers died, only their messages (`old`) are searched for at the tail.
local LONG = 1000
local function leave(queue, verb, old, text, changed, delay)
  local processing = queue .. ':processing'
  local length = redis.pcall('LLEN', processing)
  if failed_with(length) then return false end
  local removed = redis.call('LREM', processing, (old or length < LONG) and -1 or 1, text)
  if removed ~= 1 then return false end
  local answer, score
  if verb == 'retry' then
    score = string.format('%.3f', now + delay)
    answer = put_off(queue .. ':delayed', score, changed)
  elseif verb == 'fail' then
    answer = redis.pcall('LPUSH', queue .. ':failed', text)
  elseif verb == 'release' then
    answer = redis.pcall('RPUSH', queue, text)
  end
  if failed_with(answer) then
    redis.call('LPUSH', processing, text)
    return false
  end
  return true, score
end

-- Job logs are best effort. Each process collects its entries for a moment before it writes them, so another process
-- may have written younger ones meanwhile: those are taken off and put back in order. The list is newest first.
local LATE = 1000
local function time_of(entry) return string.match(entry, '"timestamp":"([^"]*)"') or '' end
local function log(entries)
  if #entries == 0 then return end
  local first = time_of(entries[1])
  for _, entry in ipairs(entries) do
    if time_of(entry) < first then first = time_of(entry) end
  end
  local merged = {}
  for at = 1, #entries do merged[at] = {time_of(entries[at]), at, entries[at]} end
  for late = 1, LATE do
    local head = redis.pcall('LINDEX', given.log, 0)
    if failed_with(head) or not head or time_of(head) <= first then break end
    redis.call('LPOP', given.log)
    -- Of the same time, what was there stays older; it was taken off youngest first.
    merged[#merged + 1] = {time_of(head), -late, head}
  end
  table.sort(merged, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  local texts = {}
  for at = 1, #merged do texts[at] = merged[at][3] end
  for at = 1, #texts, 100 do redis.pcall('LPUSH', given.log, unpack(texts, at, math.min(at + 99, #texts))) end
  redis.pcall('LTRIM', given.log, 0, given.log_keeps - 1)
end
