"""How much of a topic its group has not read: asked once, without joining the group."""

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition

from carillon.doors.kafka.group import TopicRules
from carillon.doors.kafka.thread import OwnThread


class Depth(msgspec.Struct, frozen=True):
    """What lies in a topic."""

    partitions: int
    unread: int


async def depth(rules: TopicRules, seconds: float) -> Depth | None:
    """None when there is no such topic; raises OSError when no broker answers."""
    thread = OwnThread("kafka-depth")
    try:
        return await thread.call(lambda: _ask(rules, seconds / 4))
    except KafkaException as error:
        raise ConnectionError(f"{rules.bootstrap_servers}: {error.args[0].str()}") from None
    finally:
        thread.end()


def _ask(rules: TopicRules, seconds: float) -> Depth | None:
    consumer = Consumer(rules.properties())
    try:
        found = consumer.list_topics(rules.topic, timeout=seconds).topics.get(rules.topic)
        if found is None or found.error is not None:
            return None
        places = [TopicPartition(rules.topic, number) for number in found.partitions]
        unread = 0
        for place in consumer.committed(places, timeout=seconds):
            oldest, end = consumer.get_watermark_offsets(place, timeout=seconds)
            unread += max(0, end - max(oldest, place.offset))
        return Depth(len(places), unread)
    finally:
        consumer.close()
