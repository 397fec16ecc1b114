-- Job log entries, oldest first; newer ones push the oldest out.
-- given: entries, log, log_keeps
log(given.entries)
return 0
