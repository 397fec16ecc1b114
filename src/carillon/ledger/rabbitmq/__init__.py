"""The backlog that is a RabbitMQ queue."""
