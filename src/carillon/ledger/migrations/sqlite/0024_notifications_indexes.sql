-- Live notifications by person and by what a picker may claim, for the statements of their table. Other channels pay nothing.

-- part: streams

CREATE INDEX routes_live_user_idx ON routes (
    (CASE WHEN recipient_ref LIKE 'user:%' THEN substr(recipient_ref, 6) ELSE recipient_ref END)) WHERE channel = 'sse';
