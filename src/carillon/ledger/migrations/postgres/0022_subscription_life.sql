-- The rest of a subscription's life: renewals that are asked for by themselves, and its end.

-- part: billing

ALTER TABLE subscriptions
    ADD COLUMN cancel_at_end boolean NOT NULL DEFAULT FALSE,
    -- Of the present period.
    ADD COLUMN failed_renewals integer NOT NULL DEFAULT 0,
    ADD COLUMN renewal_asked_at timestamptz;

CREATE INDEX subscriptions_ends_idx ON subscriptions (ends_at) WHERE status IN ('trial', 'active', 'past_due');
