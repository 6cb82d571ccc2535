"""Confluent's schema registry: which schema a message was written with, by the number in front of it, and the newest of a subject."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from evenflow.errors import SourceError

MAGIC: Final = 0
HEAD_BYTES: Final = 5
TIMEOUT_S: Final = 5.0
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
        answer = self._ask(path, what)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("schema"), str):
            raise SourceError(f"schema registry {self.url}: the answer to {path} is no schema: {answer!r:.100}; is it a registry?")
        if answer.get("references"):
            raise SourceError(f"schema registry {self.url}: {what} refers to other schemas, which is not available; write it as one schema")
        return str(answer["schema"])

    def _ask(self, path: str, what: str) -> Any:
        request = Request(self.url + path, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
        if self._user:
            request.add_header("Authorization", "Basic " + base64.b64encode(self._user.encode()).decode())
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except HTTPError as error:
            if error.code == 404:
                raise SourceError(f"schema registry {self.url} has not {what}; is it the registry that the producer uses?") from error
            if error.code in (401, 403):
                raise SourceError(f"schema registry {self.url} refuses the user: give {USER} in options, as 'user:password'") from error
            raise RegistryAway(f"it answers {error.code}") from error
        except (URLError, TimeoutError, OSError) as error:
            raise RegistryAway(str(error)) from error
        except ValueError as error:
            raise SourceError(f"schema registry {self.url}: the answer to {path} is not JSON; is it a registry?") from error


def number_of(message: bytes) -> int | None:
    """The schema's number in front of a message; None if there is none."""
    if len(message) < HEAD_BYTES or message[0] != MAGIC:
        return None
    return int.from_bytes(message[1:HEAD_BYTES], "big")


__all__ = ["Registry", "RegistryAway", "number_of"]
