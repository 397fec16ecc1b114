-- One window of a processing list, from its old end: which messages have a lock and which have none.
-- given: queue, first, last, hints. Answers {what, text, id, ...}: 'locked' without the text, 'orphan', or 'strange'
-- whose id the caller must pass as a hint.
local answers = {}
local window = redis.pcall('LRANGE', given.queue .. ':processing', given.first, given.last)
if failed_with(window) then return redis.error_reply(window.err) end
for _, text in ipairs(window) do
  local id = id_of(text, given.hints)
  local what = 'strange'
  if id then what = redis.call('EXISTS', lock_of(given.queue, id)) == 1 and 'locked' or 'orphan' end
  answers[#answers + 1] = what
  answers[#answers + 1] = what == 'locked' and '' or text
  answers[#answers + 1] = id or ''
end
return answers
