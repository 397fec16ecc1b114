"""Document 004: notifications from Kafka, claimed by priority under leases, told over live streams."""
