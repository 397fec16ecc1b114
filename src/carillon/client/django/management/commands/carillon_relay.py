"""`manage.py carillon_relay`: carries what committed transactions want sent to Carillon."""

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from carillon.client.clients import Client
from carillon.client.django.outbox import DjangoStore
from carillon.client.outbox import OutboxRelay
from carillon.domain.errors import CarillonError


class Command(BaseCommand):
    """Runs until it is stopped; several at once do no harm."""

    help = "Carry wishes from the table carillon_outbox to Carillon (settings CARILLON_URL, CARILLON_TOKEN)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """How long, how often, and from where."""
        parser.add_argument("--once", action="store_true", help="Carry what waits now, then end.")
        parser.add_argument("--poll", type=float, default=1.0, help="Seconds between two looks.")
        parser.add_argument("--database", default=None, help="Django's name for the database.")

    def handle(self, *_: Any, **options: Any) -> None:  # noqa: ANN401 - Django's signature
        """Send waiting rows until told to stop."""
        url = getattr(settings, "CARILLON_URL", None)
        if not url:
            raise CommandError("settings.CARILLON_URL: set the address of Carillon, e.g. http://127.0.0.1:8080")
        try:
            client = Client(url, token=getattr(settings, "CARILLON_TOKEN", None))
        except ValueError as error:
            raise CommandError(f"settings.CARILLON_URL and CARILLON_TOKEN: {error}") from None
        with client:
            relay = OutboxRelay(DjangoStore(options["database"]), client)
            if options["once"]:
                self._carry(relay)
                return
            stop = threading.Event()
            for signum in (signal.SIGTERM, signal.SIGINT):
                signal.signal(signum, lambda *_: stop.set())
            relay.run(stop, options["poll"])

    def _carry(self, relay: OutboxRelay) -> None:
        """What waits now."""
        carried = 0
        try:
            while number := relay.run_once():
                carried += number
        except CarillonError as error:
            raise CommandError(f"carried {carried}; the others wait: {error}") from None
        self.stdout.write(f"carried {carried}")
