-- Failed messages move from the failed list to the end of their queue in one step, each once.
-- given: items {{queue, length, length changed}, ...}. Answers: time, and 1 moved or 0 no longer there for each.
local answers = {}
for at, item in ipairs(given.items) do
  local failed, text, changed = item[1] .. ':failed', text_of(item[2]), text_of(item[3])
  answers[at] = 0
  if redis.pcall('LREM', failed, -1, text) == 1 then
    if failed_with(redis.pcall('LPUSH', item[1], changed)) then
      redis.call('RPUSH', failed, text)
    else
      answers[at] = 1
    end
  end
end
return {time, answers}
