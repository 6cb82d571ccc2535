"""How the messages of a topic become rows where text alone does not say it: Avro, Protobuf, with or without a schema registry."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from evenflow.errors import QueryError, SourceError
from evenflow.sources import avro, protobuf
from evenflow.sources.registry import Registry, RegistryAway

BINARY: Final = ("avro", "protobuf")


class Decoder(Protocol):
    def rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch | None:
        """A row per message; None if one of them is none. Raises RegistryAway, SourceError."""

    def why(self, value: bytes | None) -> str:
        """What is wrong with a message that is no row, if more is known than that; else nothing."""


def described(
    format_: str, topic: str, avro_schema: str | None, descriptors: Any, message: str | None, registry: str | None,
    options: Mapping[str, Any],
) -> tuple[str | None, pa.Schema | None]:  # fmt: skip
    """(what the decoder is made of, as JSON; the columns) of a format. A registry is asked now for the newest schema of the topic's values.

    Raises QueryError and SourceError.
    """
    what = f"kafka source {topic}"
    if format_ not in BINARY:
        for name, value in (("avro_schema", avro_schema), ("descriptors", descriptors), ("message", message), ("registry", registry)):
            if value is not None:
                raise QueryError(f"{what}: {name} is for messages of avro or protobuf; give format=, or leave it out")
        return None, None
    if format_ == "avro":
        avro.client()
        if avro_schema is None and registry is None:
            raise QueryError(f"{what}: give avro_schema= or registry= for messages of avro")
        if avro_schema is None:
            assert registry is not None
            try:
                avro_schema = Registry(registry, options).newest(f"{topic}-value")
            except RegistryAway as error:
                advice = "check the address, and that driver and executors can reach it"
                raise SourceError(f"{what}: the schema registry {registry} does not answer: {error}; {advice}") from error
        record = avro.record_of(avro_schema, what)
        return json.dumps({"avro": avro_schema, "registry": registry}), avro.columns_of(record, what)
    if descriptors is None or message is None:
        raise QueryError(f"{what}: give descriptors= (a file that protoc wrote) and message= (its full name) for messages of protobuf")
    data = descriptors if isinstance(descriptors, bytes) else _file(str(descriptors), what)
    columns = protobuf.columns_of(protobuf.message_class(data, message))
    told = {"descriptors": base64.b64encode(data).decode(), "message": message, "registry": registry}
    return json.dumps(told), columns


def _file(path: str, what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise QueryError(f"{what}: descriptors cannot be read: {error}") from error


def decoder_of(decoding: str, columns: pa.Schema, options: Mapping[str, Any]) -> Decoder:
    """The decoder that `described` has described."""
    said = json.loads(decoding)
    if "avro" in said:
        return avro.AvroDecoder(said["avro"], columns, Registry(said["registry"], options) if said["registry"] else None)
    class_ = protobuf.message_class(base64.b64decode(said["descriptors"]), said["message"])
    return protobuf.ProtobufDecoder(class_, columns, said["registry"] is not None)


def asks(decoding: str | None) -> bool:
    """Whether the decoder asks a registry, and waits for the answer."""
    return decoding is not None and "avro" in (said := json.loads(decoding)) and said["registry"] is not None


__all__ = ["BINARY", "Decoder", "asks", "decoder_of", "described"]
