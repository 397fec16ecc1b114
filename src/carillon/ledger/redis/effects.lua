-- One step over the mark of one effect.
-- KEYS: the mark. ARGV: verb, holder, milliseconds the mark is kept
local mark, verb, holder, keep = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local found = redis.call('GET', mark)
if verb == 'begin' then
  if found == 'done' then return 'done' end
  -- The next run of the same message takes over: it holds the message's lock, so the earlier run has ended.
  if found and found ~= 'begun:' .. holder then return 'busy' end
  redis.call('SET', mark, 'begun:' .. holder, 'PX', keep)
  return 'begun'
end
-- Any holder may finish an effect, because it did run; only the current holder may abandon it.
if verb == 'finish' then
  redis.call('SET', mark, 'done', 'PX', keep)
elseif found == 'begun:' .. holder then
  redis.call('DEL', mark)
end
return 'done'
