"""Document 003: a payment and a subscription service that work through queues in Redis."""
