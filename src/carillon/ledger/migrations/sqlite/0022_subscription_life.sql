-- The rest of a subscription's life: renewals that are asked for by themselves, and its end.

-- part: billing

ALTER TABLE subscriptions ADD COLUMN cancel_at_end INTEGER NOT NULL DEFAULT 0;
-- Of the present period.
ALTER TABLE subscriptions ADD COLUMN failed_renewals INTEGER NOT NULL DEFAULT 0;
ALTER TABLE subscriptions ADD COLUMN renewal_asked_at INTEGER;

CREATE INDEX subscriptions_ends_idx ON subscriptions (ends_at) WHERE status IN ('trial', 'active', 'past_due');
