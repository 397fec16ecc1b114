"""The backlog in a RabbitMQ queue."""
