-- Messages about a person leave the failed list in one step; one that an operator has requeued meanwhile is not there.
-- given: queue, lengths. Answers: how many were taken away.
local removed = 0
for _, length in ipairs(given.lengths) do
  removed = removed + redis.call('LREM', given.queue .. ':failed', 1, text_of(length))
end
return removed
