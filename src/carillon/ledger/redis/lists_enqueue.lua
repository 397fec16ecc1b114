-- New messages go to the end of their queues, or into the delayed set.
-- given: items {{queue, length, delay}, ...}. Answers: time, and '' or the error for each.
local answers = {}
for at, item in ipairs(given.items) do
  local text, answer = text_of(item[2]), nil
  if item[3] > 0 then
    answer = put_off(item[1] .. ':delayed', string.format('%.3f', now + item[3]), text)
  else
    answer = redis.pcall('LPUSH', item[1], text)
  end
  answers[at] = failed_with(answer) or ''
end
return {time, answers}
