"""Blueprint sse: notifications from Kafka, claimed by priority under leases, sent over live streams."""
