-- Renew locks by token; a lock of another worker, or an expired one, stays as it is.
-- given: items {{queue, length id, token, lock in ms}, ...}. Answers the places of those lost.
local lost = {}
for at, item in ipairs(given.items) do
  local lock = lock_of(item[1], text_of(item[2]))
  if holder_of(lock) == item[3] then
    redis.call('PEXPIRE', lock, item[4])
  else
    lost[#lost + 1] = at
  end
end
return lost
