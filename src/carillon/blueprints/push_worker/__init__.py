"""Document 000: a worker on the RabbitMQ queue `push.queue`."""
