-- Verdicts of many claims, each only while its lock is still this claim's own.
-- given: items {{queue, verb, length, length changed, length id, token, delay, entry}, ...}, entries, log, log_keeps
-- Answers: time, and for each item 1 applied, 2 adopted or 0 stale, then its score.
local answers, entries = {}, given.entries
for at, item in ipairs(given.items) do
  local queue, verb, token = item[1], item[2], item[6]
  local text, changed, id = text_of(item[3]), text_of(item[4]), text_of(item[5])
  local lock = lock_of(queue, id)
  local holder = holder_of(lock)
  local ours = holder == token
  local answer, score = 0, ''
  -- A success whose lock expired still counts if no other run has begun.
  if ours or (verb == 'ack' and not holder) then
    local left, put_off_until = leave(queue, verb, false, text, changed, item[7])
    if left then
      answer, score = ours and 1 or 2, put_off_until or ''
      if item[8] ~= '' then entries[#entries + 1] = item[8] end
    end
    if ours and (left or verb == 'ack') then redis.call('DEL', lock) end
  end
  answers[2 * at - 1], answers[2 * at] = answer, score
end
log(entries)
return {time, answers}
