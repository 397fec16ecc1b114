"""Blueprint push-worker: a worker on the RabbitMQ queue `push.queue`."""
