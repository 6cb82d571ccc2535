"""Settings of a client library, as users give them: a dict, or a line of text, which is how SQL says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evenflow.errors import OptionError, QueryError
from evenflow.stream.declared import a, each

Settings = tuple[tuple[str, str], ...]
SECRET: Final = ("password", "secret", "jaas", "key.pem", "token", "credential", "private_key", "user.info")


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and "\0" not in value)


def _is_setting(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(map(_is_plain, pair)) and bool(pair[0])


SETTING: Final = a("a name and a value", _is_setting)
SETTINGS: Final = each(SETTING, "settings of the client library: a dict of texts and numbers, or 'name=value, name=value'")


def as_settings(options: Mapping[str, Any] | str | None, whose: str) -> Settings:
    """Settings in the order given; as text "name=value, name=value". Raises OptionError and QueryError. whose: for messages."""
    if not isinstance(options, str):
        if not isinstance(options, Mapping | None):
            raise OptionError(f"options of {whose}: {options!r:.60} is no dict; write {{'name': 'value'}}, or 'name=value, name=value'")
        return tuple((options or {}).items())
    pairs = [part.strip().partition("=") for part in options.split(",") if part.strip()]
    for name, sign, _ in pairs:
        if not sign:
            raise QueryError(f"options of {whose}: {name!r} has no value; write name=value, name=value")
    return tuple((name.strip(), value.strip()) for name, _, value in pairs)


def check_no_secrets(options: Sequence[tuple[str, str]], what: str) -> None:
    """Refuse to save options that nobody else should read. Raises QueryError, naming what they belong to."""
    for name, _ in options:
        if any(word in name.lower() for word in SECRET):
            raise QueryError(f"{what}: {name} would be saved as plain text; add it after loading the dataflow")


def names_of(value: Sequence[str] | str) -> tuple[str, ...]:
    """Names of columns: one text with commas, or several texts. What is neither is left for who checks it."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(value) if isinstance(value, Sequence) else value


__all__ = ["SETTINGS", "Settings", "as_settings", "check_no_secrets", "names_of"]
