"""A transactional outbox for Django: an application of one table and one command, `manage.py carillon_relay`."""
