"""Who may ask: tokens, the Host that is named, and what a browser is told that it may do with the page.

There are two tokens: `view` sees everything, `operate` changes things, too. They travel in the header Authorization alone. There are no
cookies, so that no other page can ask in somebody's name. A name that leads to this machine only since a minute ago (DNS rebinding) is no
host of ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Right = Literal["view", "operate"]

ALWAYS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """operate: None where nothing may be changed (`--read-only`)."""

    view: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    operate: str | None = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def right(self, authorization: str | None) -> Right | None:
        """What the header `Authorization: Bearer TOKEN` allows."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = given.strip().encode("utf-8", "replace")
        may_operate = self.operate is not None and hmac.compare_digest(token, self.operate.encode())
        may_view = hmac.compare_digest(token, self.view.encode())
        return "operate" if may_operate else "view" if may_view else None


def is_host(header: str | None, bound: str, extra: Iterable[str] = ()) -> bool:
    """Whether a Host header names this server: an address of this machine's own, `localhost`, what it is bound to, or told of."""
    if not header:
        return False
    name = header.rsplit(":", 1)[0] if header.count(":") == 1 or header.startswith("[") and "]:" in header else header
    name = name.strip("[]").lower()
    if name in {"localhost", bound.lower(), *(each.lower() for each in extra)}:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def page_policy(nonce: str, ancestors: str = "'none'") -> str:
    """Content-Security-Policy of the page. Nothing is loaded from elsewhere and nothing inline runs. Styles of libraries need the nonce."""
    return (
        f"default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; font-src 'self'; "
        f"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {ancestors}"
    )
