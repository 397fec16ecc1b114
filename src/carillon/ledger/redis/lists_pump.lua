-- Due messages move from delayed to the end of their queue, in the order in which they became due.
-- given: queues, window. Only the pump whose ZREM returns 1 pushes: of several pumps, one moves each message.
-- Answers {moved, seconds late, ...} for each queue; moved is negative if the main key is not a list.
local answers = {}
for _, queue in ipairs(given.queues) do
  local delayed = queue .. ':delayed'
  local due = redis.pcall('ZRANGEBYSCORE', delayed, '-inf', string.format('%.6f', now), 'WITHSCORES', 'LIMIT', 0,
    given.window)
  local moved, late = failed_with(due) and -1 or 0, 0
  for at = 1, moved == 0 and #due or 0, 2 do
    if redis.call('ZREM', delayed, due[at]) == 1 then
      if failed_with(redis.pcall('LPUSH', queue, due[at])) then
        redis.call('ZADD', delayed, due[at + 1], due[at])
        moved = -1
        break
      end
      moved, late = moved + 1, math.max(late, now - tonumber(due[at + 1]))
    end
  end
  answers[#answers + 1] = moved
  answers[#answers + 1] = string.format('%.3f', late)
end
return answers
