-- The age in ms, by Redis's own clock, of the first entry after the offset; 0 when there is none.
-- KEYS: offset, stream
local offset = redis.call('GET', KEYS[1]) or '0-0'
local waiting = redis.call('XRANGE', KEYS[2], '(' .. offset, '+', 'COUNT', 1)
if #waiting == 0 then return 0 end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
return math.max(0, now - tonumber(string.match(waiting[1][1], '^%d+')))
