"""The intake checks, plans and stores intents."""
