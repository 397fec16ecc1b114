-- The oldest of too many failed messages, one window of them; none while there are not more than `over`.
-- given: queue, over, keep, window. Answers: time, and the texts that were taken away.
local failed = given.queue .. ':failed'
local length = redis.pcall('LLEN', failed)
if failed_with(length) or length <= given.over then return {time, {}} end
return {time, redis.call('RPOP', failed, math.min(given.window, length - given.keep)) or {}}
