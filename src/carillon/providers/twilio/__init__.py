"""Twilio: text messages."""
