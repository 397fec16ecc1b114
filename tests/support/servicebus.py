"""Azure Service Bus on its wire: AMQP 1.0 with tokens at `$cbs`, locks, dead letters and answered dispositions.

The frames are qpid-proton's, so that the vendor's library meets an implementation that is not its own.
"""

import base64
import hashlib
import hmac
import threading
import time
import urllib.parse
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, cast

from proton import Condition, Delivery, Message, Sender, int32, symbol, timestamp
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from tests.support.ports import free_port

Event: TypeAlias = Any
"""Proton's events; their types know nothing of which kind brings what."""
KEY_NAME, KEY = "RootManageSharedAccessKey", "c2VjcmV0LW9mLXRoZS1idXM="
DEAD_LETTERS = "/$deadletterqueue"
CREDIT = 1000


@dataclass
class Held:
    """A message of a queue; `lock` is the tag under which somebody holds it."""

    message: Message
    sequence: int
    lock: str = ""
    until: float = 0.0
    deliveries: int = 0
    why: dict[str, str] = field(default_factory=dict)


class Bus:
    """Serves in its own thread; `lock_seconds` and `max_deliveries` are those of every queue."""

    def __init__(self, port: int = 0, *, lock_seconds: float = 30.0, max_deliveries: int = 10) -> None:
        self.port = port or free_port()
        self.lock_seconds = lock_seconds
        self.max_deliveries = max_deliveries
        self.queues: dict[str, deque[Held]] = {}
        self.refused_tokens = 0
        self.dispositions: list[str] = []
        self._names = 0
        self._guard = threading.RLock()

    @property
    def connection(self) -> str:
        """What a portal shows as the connection string; without TLS, as the vendor's emulator has it."""
        return self.connection_at(self.port)

    def connection_at(self, port: int, key: str = KEY) -> str:
        login = f"SharedAccessKeyName={KEY_NAME};SharedAccessKey={key}"
        return f"Endpoint=sb://127.0.0.1:{port};{login};UseDevelopmentEmulator=true;"

    def create(self, *names: str) -> None:
        for name in names:
            self.queues.setdefault(name, deque())
            self.queues.setdefault(name + DEAD_LETTERS, deque())

    def publish(self, queue: str, *messages: Message) -> None:
        with self._guard:
            for message in messages:
                self._names += 1
                self.queues[queue].append(Held(message, self._names))
        self._tell(self._server.serve_all)

    def waiting(self, queue: str) -> int:
        """All that were not completed, locked or not."""
        with self._guard:
            return len(self.queues[queue])

    def locked(self, queue: str) -> int:
        with self._guard:
            return sum(bool(held.lock) for held in self.queues[queue])

    def dead(self, queue: str) -> list[Held]:
        with self._guard:
            return list(self.queues[queue + DEAD_LETTERS])

    def messages(self, queue: str) -> list[Message]:
        with self._guard:
            return [held.message for held in self.queues[queue]]

    def expire(self, queue: str) -> None:
        """End every lock now: what is held comes back, as after a silence of its holder."""
        with self._guard:
            for held in self.queues[queue]:
                held.until = 0.0
        self._tell(self._server.serve_all)

    def cut(self) -> None:
        """Close every connection; locks stay."""
        self._tell(self._server.cut)

    def __enter__(self) -> Self:
        self.come()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def come(self) -> None:
        self._injector = EventInjector()
        self._server = Server(self, self._guard)
        self._container = Container(self._server)
        self._container.selectable(self._injector)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()
        if not self._server.listening.wait(10):
            raise TimeoutError("the bus does not listen")

    def leave(self) -> None:
        self._tell(self._server.close)
        self._injector.close()
        self._thread.join(10)

    def _tell(self, what: Callable[[], None]) -> None:
        self._injector.trigger(ApplicationEvent("asked", subject=what))


class Server(MessagingHandler):
    """One life of the bus; runs in the container's thread."""

    def __init__(self, bus: Bus, guard: threading.RLock) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False, peer_close_is_error=False)
        self.listening = threading.Event()
        self._bus = bus
        self._guard = guard
        self._senders: list[Sender] = []
        self._connections: list[Any] = []
        self._acceptor: Any = None

    def on_start(self, event: Event) -> None:
        self._acceptor = event.container.listen(f"127.0.0.1:{self._bus.port}")
        event.container.schedule(0.1, self)
        self.listening.set()

    def on_timer_task(self, event: Event) -> None:
        if self._acceptor is not None:
            self.serve_all()
            event.container.schedule(0.1, self)

    def on_asked(self, event: Event) -> None:
        event.subject()

    def close(self) -> None:
        self._acceptor.close()
        self._acceptor = None
        self.cut()

    def cut(self) -> None:
        for connection in [each for each in self._connections if each.transport is not None]:
            connection.transport.close_tail()
            connection.transport.close_head()
        self._connections.clear()
        self._senders.clear()

    def on_connection_opening(self, event: Event) -> None:
        # The wrappers of a connection come and go; what is written on one is read on the next.
        event.connection.trusted = set()
        event.connection.replies = {}
        self._connections.append(event.connection)

    def on_link_opening(self, event: Event) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.queue = link.refusal = None
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        address = (link.remote_source if link.is_sender else link.remote_target).address or ""
        address = urllib.parse.urlsplit(address).path.lstrip("/") if "://" in address else address
        queue, _, rest = address.partition("/$management")
        if address == "$cbs" or (queue in self._bus.queues and queue != address and not rest):
            # Questions come in on one link and answers go out on its twin.
            if link.is_sender:
                event.connection.replies[address] = link
            else:
                link.asked = address
                link.flow(CREDIT)
            return
        if address not in self._bus.queues:
            link.refusal = Condition("amqp:not-found", f"The messaging entity '{address}' could not be found.")
            return
        if address.split("/")[0] not in event.connection.trusted:
            link.refusal = Condition("amqp:unauthorized-access", "Unauthorized access. 'Listen' claims are required.")
            return
        link.queue = address
        if link.is_sender:
            self._senders.append(link)
        else:
            link.flow(CREDIT)

    def on_link_opened(self, event: Event) -> None:
        if event.link.refusal is not None:
            event.link.condition = event.link.refusal
            event.link.close()

    def on_link_flow(self, event: Event) -> None:
        if event.link.is_sender and event.link.queue:
            self._serve(event.link)

    def on_link_closed(self, event: Event) -> None:
        if event.link in self._senders:
            self._senders.remove(event.link)

    def on_connection_closed(self, event: Event) -> None:
        self._forget(event.connection)

    def on_disconnected(self, event: Event) -> None:
        self._forget(event.connection)

    def _forget(self, connection: Any) -> None:
        """A link that went with its connection is lent nothing more: what it was lent stays locked."""
        self._senders = [sender for sender in self._senders if sender.connection != connection]

    def on_message(self, event: Event) -> None:
        delivery, message = event.delivery, event.message
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()
        event.link.flow(1)
        if event.link.queue is None:
            answer = self._put_token(event, message) if event.link.asked == "$cbs" else self._peek(event.link.asked)
            answer.correlation_id = message.id
            event.connection.replies[event.link.asked].send(answer)
        else:
            self._bus.publish(event.link.queue, message)

    def _peek(self, address: str) -> Message:
        """`com.microsoft:peek-message` for one message: nothing is locked and nothing is counted."""
        with self._guard:
            found = list(self._bus.queues[address.partition("/")[0]])[:1]
        code = 200 if found else 204
        told = [{"message": held.message.encode()} for held in found]
        return Message(body={"messages": told}, properties={"statusCode": int32(code), "statusDescription": "told"})

    def _put_token(self, event: Event, message: Message) -> Message:
        name = urllib.parse.urlsplit(str(cast("dict[str, Any]", message.properties)["name"])).path.strip("/")
        right = _signed(str(message.body))
        self._bus.refused_tokens += not right
        if right:
            event.connection.trusted.add(name)
        said = (202, "Accepted") if right else (401, "InvalidSignature: The token has an invalid signature.")
        return Message(properties={"status-code": int32(said[0]), "status-description": said[1]})

    def serve_all(self) -> None:
        for sender in list(self._senders):
            self._serve(sender)

    def _serve(self, sender: Sender) -> None:
        with self._guard:
            self._unlock(sender.queue)
            for held in list(self._bus.queues[sender.queue]):
                if sender.credit <= 0:
                    break
                if not held.lock:
                    self._lend(sender, held)
            if sender.drain_mode:
                sender.drained()

    def _unlock(self, queue: str) -> None:
        for held in list(self._bus.queues[queue]):
            if held.lock and held.until <= time.time():
                held.lock = ""
                self._counted(queue, held)

    def _counted(self, queue: str, held: Held) -> None:
        held.deliveries += 1
        if held.deliveries >= self._bus.max_deliveries:
            self._bury(queue, held, {"DeadLetterReason": "MaxDeliveryCountExceeded"})

    def _lend(self, sender: Sender, held: Held) -> None:
        # Sixteen characters: proton reads tags as text, and the vendor's library takes sixteen bytes for a lock.
        held.lock, held.until = uuid.uuid4().hex[:16], time.time() + self._bus.lock_seconds
        message = held.message
        message.delivery_count = held.deliveries
        message.annotations = {
            symbol("x-opt-sequence-number"): held.sequence,
            symbol("x-opt-enqueued-time"): timestamp(int(1_700_000_000_000 + held.sequence)),
            symbol("x-opt-locked-until"): timestamp(int(held.until * 1000)),
        }
        sender.send(message, tag=held.lock)

    def on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        link = delivery.link
        if not (link.is_sender and delivery.updated and link.queue):
            return
        tag, state = delivery.tag, delivery.remote_state
        with self._guard:
            # A lock that has just ended, and whose message nobody has got again yet, is over too.
            self._unlock(link.queue)
            held = next((each for each in self._bus.queues[link.queue] if each.lock == tag), None)
            if held is None:
                delivery.local.condition = Condition("com.microsoft:message-lock-lost", "The lock supplied is invalid.")
                delivery.update(Delivery.REJECTED)
            else:
                self._decide(link.queue, held, state, delivery)
                delivery.update(state)
        delivery.settle()
        self.serve_all()

    def _decide(self, queue: str, held: Held, state: Any, delivery: Any) -> None:
        self._bus.dispositions.append(str(state).rpartition(".")[2].lower())
        held.lock = ""
        if state == Delivery.ACCEPTED:
            self._bus.queues[queue].remove(held)
        elif state == Delivery.REJECTED:
            condition = delivery.remote.condition
            self._bury(queue, held, {str(name): str(value) for name, value in (condition.info or {}).items()})
        elif state == Delivery.MODIFIED:
            self._counted(queue, held)

    def _bury(self, queue: str, held: Held, why: dict[str, str]) -> None:
        held.why, held.lock = why, ""
        self._bus.queues[queue].remove(held)
        self._bus.queues[queue + DEAD_LETTERS].append(held)


def _signed(token: str) -> bool:
    """Whether the token is ours: HMAC of the resource and the expiry under the key."""
    fields = dict(urllib.parse.parse_qsl(token.removeprefix("SharedAccessSignature "), keep_blank_values=True))
    uri = urllib.parse.quote_plus(fields.get("sr", ""))
    said = hmac.new(KEY.encode(), f"{uri}\n{fields.get('se', '')}".encode(), hashlib.sha256).digest()
    right = base64.b64encode(said).decode() == fields.get("sig")
    return right and fields.get("skn") == KEY_NAME and int(fields.get("se", "0")) > time.time()
