-- Claim and lock in one step, so that no message is ever in processing without its lock.
-- given: queues {{name, most, lock in ms}, ...}, total, owner, number (of the first token), hints, bytes
-- Answers: time, claims {queue, text, id, number, ...}, busy {queue, text, id, ...}, strange {queue, text, ...},
-- errors {queue, error, ...}; a queue is given by its position.
local claims, busy, strange, errors = {}, {}, {}, {}
local left, number, bytes = given.total, given.number, given.bytes
local WINDOW = 100

local function note(list, ...)
  for _, value in ipairs({...}) do list[#list + 1] = value end
end

-- Texts whose id the caller must compute; bounded, because all of them are in the answer.
local function needs_hints(at, queue)
  local room = given.bytes
  for _, text in ipairs(redis.call('LRANGE', queue, -WINDOW, -1)) do
    room = room - #text
    if room < 0 and #strange > 0 then return end
    if not id_of(text, given.hints) then note(strange, at, text) end
  end
end

local function take(source, most)
  local queue, lock_ms = source.queue[1], source.queue[3]
  while most > 0 and source.most > 0 and source.unseen > 0 and left > 0 and bytes > 0 do
    local text = redis.pcall('LMOVE', queue, queue .. ':processing', 'RIGHT', 'LEFT')
    if failed_with(text) then
      source.unseen = 0
      return note(errors, source.at, text.err)
    end
    if not text then return end
    local id = id_of(text, given.hints)
    if not id then
      redis.call('LMOVE', queue .. ':processing', queue, 'LEFT', 'RIGHT')
      source.unseen = 0
      return needs_hints(source.at, queue)
    end
    source.unseen = source.unseen - 1
    if redis.call('SET', lock_of(queue, id), given.owner .. number, 'NX', 'PX', lock_ms) then
      note(claims, source.at, text, id, number)
      number, left, most, source.most, bytes = number + 1, left - 1, most - 1, source.most - 1, bytes - #text
    else
      -- An equal message is in progress: move this one to the end of the queue, attempts unchanged.
      redis.call('LREM', queue .. ':processing', 1, text)
      redis.call('LPUSH', queue, text)
      note(busy, source.at, text, id)
    end
  end
end

local sources = {}
for at, queue in ipairs(given.queues) do
  local length = redis.pcall('LLEN', queue[1])
  if failed_with(length) then
    note(errors, at, length.err)
  elseif length > 0 then
    -- Look at each message once: a queue of locked messages would loop for ever.
    sources[#sources + 1] = {at = at, queue = queue, most = queue[2], unseen = math.min(length, queue[2] + WINDOW)}
  end
end
-- First a fair share for each queue, so that none starves behind a full one; then the rest.
local share = math.ceil(left / math.max(1, #sources))
for _, source in ipairs(sources) do take(source, share) end
for _, source in ipairs(sources) do take(source, left) end
return {time, claims, busy, strange, errors}
