"""Streams of people: the sse and inbox providers, the hub, and the connections that read."""
