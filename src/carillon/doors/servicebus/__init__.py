"""The Service Bus door: one message becomes one intent."""
