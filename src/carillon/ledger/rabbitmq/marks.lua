-- Steps on the idempotency marks of messages, in one script, so that no other step comes between reading and setting.
-- ARGV: this process, seconds a mark lives, seconds after which another's `processing` is taken over, the prefix of marks
-- (the keys and values of the blueprint push-worker), the prefix of their holders (who set it and as which claim), and MessagePack of
-- [verb, key, claim, verb, key, claim, ...]; as arguments of their own they would cost their sender more than the script.
local process, seconds, takeover = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local marks, holders = ARGV[4], ARGV[5]

local function get(key)
  local found = redis.pcall('GET', key)
  return type(found) == 'string' and found or ''
end

local function step(verb, key, claim)
  local mark_key, holder_key = marks .. key, holders .. key
  local mark, holder = get(mark_key), get(holder_key)

  local function set(value)
    redis.call('SET', mark_key, value, 'EX', seconds)
    redis.call('SET', holder_key, claim, 'EX', seconds)
  end

  if verb == 'take' then
    if mark == 'sent' then return 'sent', holder end
    if mark == 'processing' then
      local left = redis.call('PTTL', mark_key) / 1000
      -- This process does not know the claim of its own mark: the answer that set it was lost.
      local mine = string.sub(holder, 1, #process + 1) == process .. '/'
      -- A mark without an expiry was set by hand, and stays.
      local old = left >= 0 and seconds - left >= takeover
      if not mine and not old then return 'busy', holder end
    end
    set('processing')
    return 'go', claim
  end

  -- The message was sent, even if another claim holds the mark by now.
  if verb == 'sent' then
    set('sent')
    return 'done', claim
  end

  local ours = holder == claim and (mark == 'processing' or mark == verb)
  if not ours then return 'lost', holder end
  if verb == 'release' then
    redis.call('DEL', mark_key, holder_key)
  elseif verb == 'renew' then
    set('processing')
  else
    set('failed')
  end
  return 'done', claim
end

local given, said = cmsgpack.unpack(ARGV[6]), {}
for at = 1, #given, 3 do
  said[#said + 1], said[#said + 2] = step(given[at], given[at + 1], given[at + 2])
end
return said
