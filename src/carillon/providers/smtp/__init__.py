"""Email through an SMTP server."""
