"""Which partitions of which topics a Kafka source reads, and from where to where: the broker is asked when the source is described.

A partition that a topic gets while a dataflow runs has a place of its own that waits for it: the number of the partition says which. So
every replica, and whoever goes on later, reads the same partition at the same place, and nobody has to write down who took what. A topic
that begins to match the pattern has as many places as the largest topic of the first; which of those that wait it gets, the driver says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from evenflow.errors import QueryError, SourceError
from evenflow.sources.extras import extra
from evenflow.sources.kafka_client import client, cluster_settings, problem
from evenflow.sources.settings import names_of
from evenflow.stream.declared import a

Offsets = Literal["earliest", "latest"] | Mapping[Any, Any]
Pairs = tuple[tuple[int, int], ...]
Places = tuple[tuple[str, int], ...]
LOOKUP_S: Final = 10.0


def _are_offsets(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("earliest", "latest")
    if isinstance(value, Mapping) and value and all(isinstance(name, str) for name in value):
        return all(_are_offsets(own) for own in value.values())
    number = int | np.integer
    return isinstance(value, Mapping) and all(isinstance(each, number) and each >= 0 for pair in value.items() for each in pair)


OFFSETS: Final = a("'earliest', 'latest', or a dict with an offset for each partition", _are_offsets)


class Place(NamedTuple):
    """What one reader reads. start: its first offset. end: the offset before which it ends. waits: the partition need not be there yet.
    beyond: a partition for which there is no place any more. newcomer: the place waits for the topic that comes as the one of this number;
    -1: the topic is known."""

    topic: str
    number: int
    start: int
    end: int | None = None
    waits: bool = False
    beyond: int | None = None
    newcomer: int = -1


class Bounds(NamedTuple):
    """starts, ends: an offset for each partition, by its number; where there are several topics by its place. places: (topic, partition)
    of each place, where there are several topics. name: of the topics, for people."""

    starts: Pairs
    ends: Pairs
    places: Places
    name: str


def places_of(topic: str, starts: Pairs, ends: Pairs, places: Places, spare: int, spare_topics: int = 0) -> list[Place]:
    """What each partition of the source reads: those that were there first, then those that may come, topic by topic, and then those of
    topics that may come."""
    until = dict(ends)
    named = places or tuple((topic, number) for number, _ in starts)
    found = [Place(*at, start, until.get(key)) for at, (key, start) in zip(named, starts, strict=True)]
    for one in dict.fromkeys(name for name, _ in named) if spare else ():
        first = 1 + max(number for name, number in named if name == one)
        for number in range(first, first + spare):
            beyond = first + spare if number + 1 == first + spare else None
            found.append(Place(one, number, 0, None, True, beyond))
    each = most_partitions(named, spare)
    for newcomer in range(spare_topics):
        for number in range(each):
            found.append(Place("", number, 0, None, True, each if number + 1 == each else None, newcomer))
    return found


def most_partitions(places: Places, spare: int) -> int:
    """So many places a topic has that comes: as many as the largest of the first has, those that may come to it included."""
    return 1 + max(number for _, number in places) + spare


def configured(servers: str, topics: Sequence[str], options: Sequence[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """By topic, its configuration. Raises SourceError."""
    kafka, admin = client(), extra("confluent_kafka.admin", "Kafka", "confluent-kafka", "kafka")
    asking = admin.AdminClient(cluster_settings(servers, options))  # Answers come only while there is one.
    asked = [admin.ConfigResource(admin.ResourceType.TOPIC, name) for name in topics]
    try:
        told = asking.describe_configs(asked, request_timeout=LOOKUP_S)
        return {each.name: {name: entry.value for name, entry in told[each].result().items()} for each in asked}
    except kafka.KafkaException as error:
        raise SourceError(f"kafka source: cannot ask {servers} how {', '.join(topics)} is configured: {problem(error.args[0])}") from error


def since(servers: str, options: Sequence[tuple[str, str]], places: Sequence[tuple[str, int]], begin_us: int) -> list[int]:
    """Of each (topic, partition) the offset of the first message that is not older; where there is none, that of the next one that comes.
    Raises SourceError."""
    kafka = client()

    def ask(consumer: Any) -> list[int]:
        wanted = [kafka.TopicPartition(topic, number, -(-begin_us // 1000)) for topic, number in places]
        found = consumer.offsets_for_times(wanted, timeout=LOOKUP_S)
        told = {(each.topic, each.partition): each for each in found}
        if wrong := next((each for each in found if each.error is not None), None):
            raise kafka.KafkaException(wrong.error)
        return [told[place].offset if told[place].offset >= 0 else _marks(consumer, *place)[1] for place in places]

    return _asked(servers, options, f"where messages of {datetime.fromtimestamp(begin_us / 1e6, UTC)} are", ask)


def oldest(servers: str, options: Sequence[tuple[str, str]], places: Sequence[tuple[str, int]]) -> list[int]:
    """Of each (topic, partition) the offset from which on it has messages. Raises SourceError."""
    return _asked(servers, options, "for the oldest messages", lambda consumer: [_marks(consumer, *place)[0] for place in places])


def kept_since(told: Mapping[str, str], begin_us: int, now_us: int) -> bool:
    """Whether a topic of this configuration keeps all that has been written since then."""
    kept_ms = int(told.get("retention.ms", 0))
    return begin_us >= now_us or (int(told.get("retention.bytes", 0)) < 0 and (kept_ms < 0 or now_us - begin_us < kept_ms * 1000))


def _marks(consumer: Any, topic: str, number: int) -> tuple[int, int]:
    """The first offset of a partition, and the next that will be written."""
    found: tuple[int, int] = consumer.get_watermark_offsets(client().TopicPartition(topic, number), timeout=LOOKUP_S)
    return found


def _asked(servers: str, options: Sequence[tuple[str, str]], what: str, ask: Callable[[Any], list[int]]) -> list[int]:
    kafka = client()
    consumer = kafka.Consumer({**cluster_settings(servers, options), "group.id": "evenflow", "allow.auto.create.topics": False})
    try:
        return ask(consumer)
    except kafka.KafkaException as error:
        raise SourceError(f"kafka source: cannot ask {servers} {what}: {problem(error.args[0])}") from error
    finally:
        consumer.close()


def topics_like(servers: str, pattern: str, options: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The topics whose whole name is as the pattern says, by name. Raises SourceError."""
    kafka = client()
    consumer = kafka.Consumer({**cluster_settings(servers, options), "group.id": "evenflow", "allow.auto.create.topics": False})
    try:
        there = consumer.list_topics(timeout=LOOKUP_S).topics
    except kafka.KafkaException as error:
        raise SourceError(f"kafka source: cannot ask {servers} for topics like {pattern!r}: {problem(error.args[0])}") from error
    finally:
        consumer.close()
    fits = re.compile(pattern).fullmatch
    return tuple(name for name, one in sorted(there.items()) if fits(name) and one.error is None and one.partitions)


def chosen(topic: str | Sequence[str] | None, pattern: str | None) -> tuple[str, ...] | re.Pattern[str]:
    """The topics that are named, or the pattern. Raises QueryError."""
    if (topic is None) == (pattern is None):
        raise QueryError("kafka source: give topic=, or topic_pattern=, and not both")
    if pattern is not None:
        try:
            return re.compile(pattern)
        except (re.error, TypeError) as error:
            raise QueryError(f"kafka source: topic_pattern={pattern!r} is no regular expression: {error}") from error
    named = names_of(topic) if topic is not None else ()
    if (
        not isinstance(named, tuple)
        or not named
        or not all(isinstance(name, str) and name for name in named)
        or len(set(named)) < len(named)
    ):
        raise QueryError(f"kafka source: topic={topic!r} is no topic; give a name, or several different ones")
    return named


def bounds(
    servers: str, wanted: tuple[str, ...] | re.Pattern[str], options: Sequence[tuple[str, str]], starting: Offsets, ending: Offsets | None
) -> Bounds:
    """First offsets of all partitions, and the offsets before which they end, as the broker knows them now. Raises SourceError."""
    kafka = client()
    settings = {**cluster_settings(servers, options), "group.id": "evenflow", "allow.auto.create.topics": False}
    consumer = kafka.Consumer(settings)
    shown = wanted.pattern if isinstance(wanted, re.Pattern) else ", ".join(wanted)
    try:
        if isinstance(wanted, re.Pattern):
            there = consumer.list_topics(timeout=LOOKUP_S).topics
            topics = tuple(sorted(name for name in there if wanted.fullmatch(name)))
            if not topics:
                raise SourceError(f"kafka source: {servers} has no topic whose whole name is as {shown!r} says; create one first")
        else:
            topics = wanted
        marks: dict[tuple[str, int], tuple[int, int]] = {}
        for topic in topics:
            known = consumer.list_topics(topic, timeout=LOOKUP_S).topics[topic]
            if known.error is not None or not known.partitions:
                raise SourceError(f"kafka source: {servers} has no topic {topic!r}; create it, or check the name")
            for number in sorted(known.partitions):
                marks[topic, number] = consumer.get_watermark_offsets(kafka.TopicPartition(topic, number), timeout=LOOKUP_S)
    except kafka.KafkaException as error:
        raise SourceError(f"kafka source: cannot ask {servers} for the topic {shown!r}: {problem(error.args[0])}") from error
    finally:
        consumer.close()
    several = isinstance(wanted, re.Pattern) or len(topics) > 1
    keys = list(range(len(marks))) if several else [number for _, number in marks]
    starts = tuple((key, _offset(*place, starting, mark)) for key, (place, mark) in zip(keys, marks.items(), strict=True))
    ends: Pairs = ()
    if ending is not None:
        ends = tuple((key, _offset(*place, ending, mark)) for key, (place, mark) in zip(keys, marks.items(), strict=True))
    return Bounds(starts, ends, tuple(marks) if several else (), shown)


def _offset(topic: str, partition: int, said: Any, marks: tuple[int, int]) -> int:
    """An offset of one partition. marks: its first, and the next that will be written."""
    if isinstance(said, Mapping) and topic in said:
        said = said[topic]
    if isinstance(said, str) and said in ("earliest", "latest"):
        return marks[said == "latest"]
    if isinstance(said, str) or partition not in said:
        raise QueryError(f"kafka source {topic}: give 'earliest', 'latest' or an offset for each partition; partition {partition} has none")
    if said[partition] > marks[1]:
        raise SourceError(f"kafka source {topic}: partition {partition} has the offsets {marks[0]} to {marks[1]}, not {said[partition]}")
    # Those that the broker has deleted are an error for who reads them: whoever starts again with these offsets goes on far behind them.
    return int(said[partition])


__all__ = [
    "OFFSETS", "Bounds", "Offsets", "Pairs", "Place", "Places", "bounds", "chosen", "kept_since", "most_partitions", "oldest", "places_of",
    "since", "topics_like",
]  # fmt: skip
