-- The depths of many queues at one moment; a key of another type counts as empty.
-- given: queues. Answers: time, then main, processing, delayed, failed and the oldest text of main for each.
local answers = {time}
local function size(command, key)
  local found = redis.pcall(command, key)
  return failed_with(found) and 0 or found
end
for _, queue in ipairs(given.queues) do
  local main = size('LLEN', queue)
  answers[#answers + 1] = main
  answers[#answers + 1] = size('LLEN', queue .. ':processing')
  answers[#answers + 1] = size('ZCARD', queue .. ':delayed')
  answers[#answers + 1] = size('LLEN', queue .. ':failed')
  answers[#answers + 1] = main > 0 and redis.call('LINDEX', queue, -1) or ''
end
return answers
