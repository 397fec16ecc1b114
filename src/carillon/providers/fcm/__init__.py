"""Firebase Cloud Messaging: push."""
