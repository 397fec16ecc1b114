-- What `carillon ledger tidy` removes of the part streams, once every table is empty.
-- The view of document 004 goes with its function, in whichever schema it is.
DROP FUNCTION notification_written() CASCADE;
DROP FUNCTION notifications_written() CASCADE;
DROP FUNCTION notifications_write();
DO $$
DECLARE
    shown regclass;
BEGIN
    FOREACH shown IN ARRAY ARRAY[to_regclass('notifications.notifications'), to_regclass('notifications'),
                                 to_regclass('sse_notifications')] LOOP
        IF (SELECT relkind FROM pg_class WHERE oid = shown) = 'v'
            AND (SELECT bool_or(d.refobjid = 'stream_entries'::regclass) FROM pg_depend d JOIN pg_rewrite w ON w.oid = d.objid
                 WHERE w.ev_class = shown) THEN
            EXECUTE format('DROP VIEW %s', shown);
        END IF;
    END LOOP;
END $$;
DROP FUNCTION notification_payload(text);
DROP STATISTICS IF EXISTS routes_live_ids, routes_live_users;
DROP INDEX IF EXISTS routes_live_id_idx;
DROP INDEX IF EXISTS routes_live_user_idx;
DROP INDEX IF EXISTS routes_live_claim_idx;
DROP INDEX IF EXISTS routes_live_lease_idx;
DROP TYPE notification_priority;
DROP INDEX IF EXISTS routes_held_idx;
DROP INDEX IF EXISTS routes_leased_idx;
DROP TABLE stream_tickets;
DROP TABLE presence;
DROP TABLE replicas;
DROP TABLE stream_entries;
DROP TABLE streams;
