"""Where regions are, as users write it: "host:port" of a stream sink, or "host:port?listens=4001" behind something that forwards another
port than the region listens at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, urlsplit

from evenflow.errors import OptionError

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

Place = tuple[str, int, int]
"""(host, port, port at which the region listens)."""


def place_of(url: str, whose: str = "subscription") -> Place:
    """Where a region is. Raises OptionError."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname, parts.port
        listens = int(parse_qs(parts.query).get("listens", [str(port)])[-1])
    except (ValueError, TypeError, AttributeError) as error:
        raise OptionError(f"{whose}: {url!r:.100} is no region; write host:port, such as localhost:4001") from error
    if not host or not port or parts.scheme not in ("", "evenflow") or parts.path not in ("", "/") or not 0 < listens < 65_536:
        raise OptionError(f"{whose}: {url!r:.100} is no region; write host:port, such as localhost:4001")
    return host, port, listens


def places_of(urls: Sequence[str], tls_ca: str | None, whose: str = "subscription") -> list[Place]:
    """Where regions are that are read together. tls_ca: by which those on other machines are believed. Raises OptionError."""
    if not urls:
        raise OptionError(f"{whose}: no region is given; give the host:port of at least one")
    places = [place_of(url, whose) for url in urls]
    if len({place[:2] for place in places}) < len(places):
        raise OptionError(f"{whose}: the same region is given twice")
    far = [url for url, (host, _, _) in zip(urls, places, strict=True) if host not in LOOPBACK]
    if far and tls_ca is None:
        raise OptionError(f"{whose}: {far[0]} is on another machine, so it needs tls_ca, the authority of the regions' certificates")
    return places
