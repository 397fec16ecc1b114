"""Blueprint galaxy: intents come in by a Redis Stream, push events and mail commands go out by two others."""
