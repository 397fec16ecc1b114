-- What `carillon ledger tidy` removes of the part billing, once every table is empty.
DROP TABLE queue_outbox;
DROP TABLE usage_deltas;
DROP TABLE usage_counters;
DROP TABLE payment_webhook_requests;
DROP FUNCTION payment_webhook_requests_touch();
DROP TABLE refunds;
DROP TABLE payments;
DROP TABLE subscriptions;
