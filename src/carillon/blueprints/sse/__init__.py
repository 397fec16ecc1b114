"""Blueprint sse: notifications from Kafka, claimed by priority under leases, told over live streams."""
