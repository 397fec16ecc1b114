"""Azure Communication Services: email."""
