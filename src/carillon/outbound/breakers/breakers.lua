-- The breaker machine of domain/breaker.py as one atomic step, on Redis's own clock, so that skewed hosts agree.
-- KEYS: state, failures, successes, opened_at, probes (sorted set of probe starts), the number of probes so far
-- ARGV: verb (admit|ok|fail|heal|look|trip), failure_threshold, open_seconds, success_threshold, half_open_max_probes, probe_seconds
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local verb, threshold, open_seconds = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local enough, max_probes, probe_seconds = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local state = redis.call('GET', KEYS[1])
-- Operators read these keys: both exist from the first question on.
if not state then
  redis.call('SET', KEYS[1], 'closed')
  redis.call('SETNX', KEYS[2], '0')
end
if state ~= 'open' and state ~= 'half_open' then state = 'closed' end

local function enter(new)
  redis.call('SET', KEYS[1], new)
  redis.call('DEL', KEYS[3], KEYS[5])
  if new == 'open' then redis.call('SET', KEYS[4], string.format('%.6f', now)) end
  if new == 'closed' then redis.call('SET', KEYS[2], '0'); redis.call('DEL', KEYS[4]) end
  state = new
end

-- A state set by hand has no opening time: its open time runs from the first reading.
local function remaining()
  local opened = tonumber(redis.call('GET', KEYS[4]) or '')
  if not opened then
    redis.call('SET', KEYS[4], string.format('%.6f', now))
    opened = now
  end
  return opened + open_seconds - now
end

local function answer(now_is, said)
  return {now_is, said, redis.call('GET', KEYS[2]) or '0'}
end

-- A look answers the whole breaker: seconds until a probe, successes, and when each live probe began, counted from now.
if verb == 'look' then
  local left = 0
  if state == 'open' then left = remaining() end
  if left < 0 then left = 0 end
  local seen = answer((state == 'open' and left <= 0) and 'half_open' or state, 'stop')
  seen[4], seen[5] = string.format('%.6f', left), redis.call('GET', KEYS[3]) or '0'
  local probes = redis.call('ZRANGEBYSCORE', KEYS[5], '(' .. string.format('%.6f', now - probe_seconds), '+inf', 'WITHSCORES')
  for at = 2, #probes, 2 do seen[#seen + 1] = string.format('%.6f', tonumber(probes[at]) - now) end
  return seen
end

if verb == 'heal' then
  if state == 'open' then enter('half_open') end
  return answer(state, 'stop')
end

if verb == 'trip' then
  if state ~= 'open' then enter('open') end
  return answer(state, 'stop')
end

if verb == 'admit' then
  if state == 'closed' then return answer(state, 'go') end
  if state == 'open' then
    if remaining() > 0 then return answer(state, 'stop') end
    enter('half_open')
  end
  -- A probe whose worker died counts no longer after probe_seconds.
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now - probe_seconds)
  if redis.call('ZCARD', KEYS[5]) >= max_probes then return answer(state, 'stop') end
  redis.call('ZADD', KEYS[5], now, clock[1] .. '.' .. clock[2] .. '-' .. redis.call('INCR', KEYS[6]))
  return answer(state, 'probe')
end

if verb == 'ok' then
  if state == 'closed' then redis.call('SET', KEYS[2], '0') end
  if state == 'half_open' then
    if redis.call('INCR', KEYS[3]) >= enough then enter('closed') else redis.call('ZPOPMIN', KEYS[5]) end
  end
  return answer(state, 'stop')
end

-- verb == 'fail'; while open it is the late failure of an older call and changes nothing
if state == 'closed' then
  if redis.call('INCR', KEYS[2]) >= threshold then enter('open') end
elseif state == 'half_open' then
  redis.call('INCR', KEYS[2])
  enter('open')
end
return answer(state, 'stop')
