-- Orphans of the processing list go to delayed or failed, each only while nobody holds its lock.
-- given: items {{queue, verb, length, length changed, length id, delay, entry}, ...}, entries, log, log_keeps
-- Answers: time, and for each item 1 swept or 0 not, then its score.
local answers, entries = {}, given.entries
for at, item in ipairs(given.items) do
  local text, changed, id = text_of(item[3]), text_of(item[4]), text_of(item[5])
  local swept, score = false, nil
  if not holder_of(lock_of(item[1], id)) then
    swept, score = leave(item[1], item[2], true, text, changed, item[6])
  end
  if swept and item[7] ~= '' then entries[#entries + 1] = item[7] end
  answers[2 * at - 1], answers[2 * at] = swept and 1 or 0, score or ''
end
log(entries)
return {time, answers}
