-- Chains of channels, and how long a delivery report may take.

-- goal: what the chain of a person is tried for. step: the place of a route in it. not_before: the end of the quiet hours that
-- hold it. receipt_due: when a message without a delivery report counts as not delivered. All are empty for most routes.
ALTER TABLE routes ADD COLUMN goal TEXT;
ALTER TABLE routes ADD COLUMN step INTEGER;
ALTER TABLE routes ADD COLUMN not_before INTEGER;
ALTER TABLE routes ADD COLUMN receipt_due INTEGER;

CREATE INDEX routes_receipt_due_idx ON routes (receipt_due) WHERE receipt_due IS NOT NULL;
