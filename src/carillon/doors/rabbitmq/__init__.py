"""The RabbitMQ door: one message becomes one intent."""
