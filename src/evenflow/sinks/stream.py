"""Results that whoever subscribes reads from the driver's own port (race.md, W5, W6).

This is the description. The port itself opens where there are sockets and threads (`world.spark.regions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from evenflow.errors import OptionError, SinkError
from evenflow.sinks.sink import PATIENCE, Sink, Where, Writer
from evenflow.stream.declared import Declared, May, number, optional, text, whole
from evenflow.stream.region_url import LOOPBACK

SECRET_VARIABLE: Final = "EVENFLOW_STREAM_SECRET"


@dataclass(frozen=True)
class StreamSink(Declared, Sink):
    """See `evenflow.sinks.stream`. keep_s, keep_mb: for how long and how much of what is finished is kept for subscribers."""

    kind: ClassVar[str] = "stream"
    where: ClassVar[Where] = "driver"
    marked: ClassVar[bool] = True
    port: int
    host: str = "127.0.0.1"
    secret_file: str | None = None
    keep_s: float = 60.0
    keep_mb: int = 256
    tls_certificate: str | None = None
    tls_key: str | None = None
    retries: int = field(default=5, kw_only=True)
    backoff_ms: int = field(default=100, kw_only=True)

    MAY: ClassVar[Mapping[str, May]] = {
        **PATIENCE, "port": whole(0, 65_535), "host": text("the address of an interface, such as 127.0.0.1"),
        "keep_s": number(None, 1e6), "keep_mb": whole(1, 1 << 20), "secret_file": optional(text("a file")),
        "tls_certificate": optional(text("a file in PEM")), "tls_key": optional(text("a file in PEM")),
    }  # fmt: skip
    option_owner: ClassVar[str] = "stream sink"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise OptionError("stream sink: tls_certificate and tls_key belong together; give both, or none")
        if self.host not in LOOPBACK and self.tls_certificate is None:
            raise OptionError(
                f"stream sink: host {self.host!r} can be reached from other machines, so it needs tls_certificate and tls_key, files in "
                "PEM in the driver. Without them give host='127.0.0.1'"
            )

    def open(self, run_id: str) -> Writer:
        raise SinkError("a stream sink is opened by a driver; this world has no port for it")
