"""The Kafka client library, which is an extra: how it is found, told where the brokers are, and what its errors mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evenflow.sources.extras import extra
from evenflow.sources.settings import SETTING, as_settings, check_no_secrets
from evenflow.stream.declared import each

SETTINGS: Final = each(SETTING, "librdkafka's settings: a dict of texts and numbers, or 'name=value, name=value'")


def client() -> Any:
    """The module `confluent_kafka`. Raises QueryError if it is not installed."""
    return extra("confluent_kafka", "Kafka", "confluent-kafka", "kafka")


def cluster_settings(servers: str, options: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What every client of a cluster is given. options: librdkafka's, such as security.protocol. Its log is quiet: errors are raised."""
    own = {name: value for name, value in options if not name.startswith("schema.registry.")}
    return {"bootstrap.servers": servers, "log_level": 0, "error_cb": _ignore, "socket.keepalive.enable": True, **own}


def as_options(options: Mapping[str, str] | str | None) -> tuple[tuple[str, str], ...]:
    """librdkafka's settings in the order given; as text "name=value, name=value", which is how SQL says them. Raises QueryError."""
    return as_settings(options, "Kafka")


def _ignore(error: Any) -> None:
    """Errors that concern no message are retried by the library."""


def problem(error: Any) -> str:
    """A KafkaError in words, and what to do about it."""
    codes = client().KafkaError
    known = (
        ("no broker answers: check the address, and that driver and executors can reach it",
         codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._TIMED_OUT),
        ("the host name is unknown: check the address", codes._RESOLVE),
        ("the broker refuses the credentials: check security.protocol and sasl.* in options", codes._AUTHENTICATION),
        ("the user may not use this topic: give it the right to", codes.TOPIC_AUTHORIZATION_FAILED),
        ("there is no such topic: create it, or check the name", codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC),
        ("there is no such partition any more: was the topic deleted and created again?", codes._UNKNOWN_PARTITION),
        ("the broker has deleted the messages there: keep them for longer, or start from 'earliest'",
         codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE),
        ("a row is larger than the topic takes: raise max.message.bytes, or select fewer columns", codes.MSG_SIZE_TOO_LARGE),
    )  # fmt: skip
    advice = next((advice for advice, *of in known if error.code() in of), "see the broker")
    return f"{error.str()} ({error.name()}); {advice}"


__all__ = ["as_options", "check_no_secrets", "client", "cluster_settings", "problem"]
