"""The Kafka door: one record becomes one intent."""
