-- The archive of a person's inbox: an archived entry leaves the list and the count, and stays in the stream.

-- part: streams

-- When the person put the entry away; NULL in the inbox.
ALTER TABLE stream_entries ADD COLUMN archived_at INTEGER;
