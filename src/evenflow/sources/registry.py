"""Confluent's schema registry: which schema a message was written with, by the number in front of it, and the newest of a subject."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from reprlib import repr as shown
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote

from evenflow.errors import SourceError
from evenflow.sources.answer import TooMuch, ask, origin

MAGIC: Final = 0
HEAD_BYTES: Final = 5
EACH_S: Final = 5.0
"""Of a connection or a read."""
WHOLE_S: Final = 10.0
"""Of an answer."""
MOST_BYTES: Final = 1 << 24
"""Of an answer. A schema is a message of the registry's own topic, which has 1 MiB unless somebody allows more."""
USER: Final = "schema.registry.basic.auth.user.info"
"""The option with "user:password", as Confluent's clients call it."""


class RegistryAway(Exception):
    """Nobody answers, or not now: it may pass."""


class Registry:
    """A client of one process. Schemas of a number never change, so each is asked for once."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url, self._user = url.rstrip("/"), str((options or {}).get(USER, ""))
        self._known: dict[int, str] = {}

    def schema(self, number: int) -> str:
        """The text of the schema with a number. Raises RegistryAway; SourceError if there is none."""
        if number not in self._known:
            self._known[number] = self._text(f"/schemas/ids/{number}", f"a schema with the number {number}")
        return self._known[number]

    def newest(self, subject: str) -> str:
        """The text of the newest schema of a subject. Raises RegistryAway; SourceError if there is none."""
        return self._text(f"/subjects/{quote(subject, safe='')}/versions/latest", f"a subject {subject!r}")

    def _text(self, path: str, what: str) -> str:
        answer = self._said(path, self._ask(path, what))
        if not isinstance(answer, Mapping) or not isinstance(answer.get("schema"), str):
            raise SourceError(f"schema registry {self.url}: the answer to {path} is no schema: {shown(answer):.100}; is it a registry?")
        if answer.get("references"):
            raise SourceError(f"schema registry {self.url}: {what} refers to other schemas, which is not available; write it as one schema")
        return str(answer["schema"])

    def _said(self, path: str, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except ValueError as error:
            raise SourceError(f"schema registry {self.url}: the answer to {path} is not JSON; is it a registry?") from error
        except RecursionError as error:
            raise SourceError(f"schema registry {self.url}: the answer to {path} is nested too deeply; is it a registry?") from error

    def _ask(self, path: str, what: str) -> bytes:
        wanted = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        proof = "Basic " + base64.b64encode(self._user.encode()).decode() if self._user else ""
        try:
            return ask(self.url + path, wanted, proof, each_s=EACH_S, whole_s=WHOLE_S, most=MOST_BYTES)
        except HTTPError as error:
            if error.code == 404:
                raise SourceError(f"schema registry {self.url} has not {what}; is it the registry that the producer uses?") from error
            if error.code in (401, 403):
                raise SourceError(f"schema registry {self.url} {self._refusal(error)}") from error
            raise RegistryAway(f"it answers {error.code}") from error
        except OSError as error:
            raise RegistryAway(str(error)) from error
        except TooMuch as error:
            said = f"the answer to {path} has more than {MOST_BYTES} bytes; is it a registry?"
            raise SourceError(f"schema registry {self.url}: {said}") from error
        except ValueError as error:
            raise SourceError(f"schema registry {self.url}: this is no address of a registry ({error}); write http://host:port") from error

    def _refusal(self, error: HTTPError) -> str:
        if (other := origin(error.url)) != origin(self.url):
            return f"sends us on to {other}, which does not get its password: give that as the registry if it is one"
        return f"refuses the user: give {USER} in options, as 'user:password'"


def number_of(message: bytes) -> int | None:
    """The schema's number in front of a message; None if there is none."""
    if len(message) < HEAD_BYTES or message[0] != MAGIC:
        return None
    return int.from_bytes(message[1:HEAD_BYTES], "big")


__all__ = ["Registry", "RegistryAway", "number_of"]
