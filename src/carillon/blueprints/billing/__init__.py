"""Blueprint billing: a payment and a subscription service that work through queues in Redis."""
