"""Functions between texts and bytes: base 64, hexadecimal digits, character sets, addresses of the web, digests by Spark's own hashes."""

from __future__ import annotations

import base64
import hmac
import re
import string
import urllib.parse
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa

from evenflow.errors import ExpressionError
from evenflow.query.sql import octets
from evenflow.query.sql import operators as op
from evenflow.query.sql.arguments import a_string, a_string_or_bytes
from evenflow.query.sql.casts import cast
from evenflow.query.sql.hashing import hashed, murmur, xxhash
from evenflow.query.sql.node import InvalidValue, Node, choose, literal, rowwise
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import BINARY, BOOL, INT, LONG, STRING, common, integral

# Digits

_ALPHABET: Final = {letter: at for at, letter in enumerate(string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/")}


def _base64(value: bytes) -> str:
    """In lines of 76 digits, as in mails."""
    text = base64.b64encode(value).decode()
    return "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76))


def _from_base64(text: str) -> bytes:
    """As Java's decoder for mails: what is no digit is passed over; what is left must be whole groups of four, or end with `=`."""
    found, bits, count, at = bytearray(), 0, 0, 0
    while at < len(text):
        letter, at = text[at], at + 1
        if letter == "=":
            if count == 0 or (count == 2 and text[at : at + 1] != "="):
                raise InvalidValue(f"{text!r} is not base 64: its last group is not whole")
            at += count == 2
            break
        if letter not in _ALPHABET:
            continue
        bits, count = bits << 6 | _ALPHABET[letter], count + 1
        if count == 4:
            found += bits.to_bytes(3, "big")
            bits = count = 0
    if count == 1 or any(letter in _ALPHABET for letter in text[at:]):
        raise InvalidValue(f"{text!r} is not base 64: its last group is not whole")
    if count:
        found += (bits >> (4 if count == 2 else 2)).to_bytes(count - 1, "big")
    return bytes(found)


def _unhex(text: str) -> bytes | None:
    """None if there is something else than digits. One digit more than whole bytes stands in front."""
    if not re.fullmatch("[0-9a-fA-F]*", text, re.ASCII):
        return None
    return bytes.fromhex("0" * (len(text) % 2) + text)


def _hex(a: Node) -> Node:
    if integral(a.type):
        return rowwise(lambda v: f"{v & 0xFFFF_FFFF_FFFF_FFFF:X}", STRING, cast(a, LONG))
    return rowwise(lambda v: v.hex().upper(), STRING, a_string_or_bytes(a, "hex"))


def _to_binary(tried: bool, a: Node, form: Node | None = None) -> Node:
    given = "hex" if form is None else constant_of(form, "the format of to_binary")
    name = str(given).lower()
    if name not in ("hex", "base64", "utf-8", "utf8"):
        raise ExpressionError(f"to_binary: the format must be 'hex', 'base64' or 'utf-8', not {given!r}")
    if name.startswith("utf"):
        return cast(a_string(a, "to_binary"), BINARY)

    def read(text: str) -> bytes | None:
        try:
            found = _unhex(text) if name == "hex" else _strict_base64(text)
        except InvalidValue:
            found = None
        if found is None and not tried:
            raise InvalidValue(f"{text!r} is not {name}; use try_to_binary for null instead")
        return found

    return rowwise(read, BINARY, a_string(a, "to_binary"), raises=not tried)


def _strict_base64(text: str) -> bytes:
    bare = re.sub(r"\s", "", text)
    if not re.fullmatch("[A-Za-z0-9+/]*={0,2}", bare) or (len(bare) % 4 if "=" in bare else len(bare) % 4 == 1):
        raise InvalidValue(f"{text!r} is not base 64")
    return _from_base64(bare)


# Character sets

_SETS: Final = {"US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-8": "utf-8", "UTF-16BE": "utf-16-be", "UTF-16LE": "utf-16-le",
                "UTF-16": "utf-16", "UTF-32": "utf-32-be"}  # fmt: skip


def _set_of(node: Node, what: str) -> str:
    name = constant_of(node, f"the character set of {what}")
    if str(name).upper() not in _SETS:
        raise ExpressionError(f"{what}: the character set must be one of {', '.join(_SETS)}, not {name!r}")
    return _SETS[str(name).upper()]


def _encode(a: Node, name: Node) -> Node:
    given = _set_of(name, "encode")

    def one(text: str) -> bytes:
        try:
            return (b"\xfe\xff" + text.encode("utf-16-be") if text else b"") if given == "utf-16" else text.encode(given)
        except UnicodeEncodeError:
            raise InvalidValue(f"{text!r} cannot be written in {given}") from None

    return rowwise(one, BINARY, a_string(a, "encode"), raises=True)


def _decode(*args: Node) -> Node:
    """Of bytes and a character set; or, with more arguments, of a value and pairs of what it may be and what that gives."""
    if len(args) > 2:
        return _looked_up(args[0], args[1:])
    given = _set_of(args[1], "decode")

    def one(value: bytes) -> str:
        try:
            if given == "utf-16":
                little = value[:2] == b"\xff\xfe"
                bare = value[2:] if value[:2] in (b"\xff\xfe", b"\xfe\xff") else value
                return bare.decode("utf-16-le" if little else "utf-16-be")
            return value.decode(given)
        except UnicodeDecodeError:
            raise InvalidValue(f"{value!r} is not {given}") from None

    return rowwise(one, STRING, a_string_or_bytes(args[0], "decode"), raises=True)


def _looked_up(value: Node, rest: tuple[Node, ...]) -> Node:
    default = rest[-1] if len(rest) % 2 else literal(pa.scalar(None, STRING))
    pairs = list(zip(rest[: len(rest) // 2 * 2 : 2], rest[1 : len(rest) // 2 * 2 : 2], strict=True))
    type_ = common([*(result.type for _, result in pairs), default.type], "the results of decode(...)")
    cases = [(op.null_safe_equal(value, wanted), cast(result, type_)) for wanted, result in pairs]
    return choose(cases, cast(default, type_))


# Addresses of the web


def _url_encode(text: str) -> str:
    return urllib.parse.quote_plus(text, safe="*").replace("~", "%7E")


def _url_decode(tried: bool, text: str) -> str | None:
    if re.search("%(?![0-9a-fA-F]{2})", text):
        if tried:
            return None
        raise InvalidValue(f"{text!r} has a % without two digits behind it; use try_url_decode for null instead")
    return urllib.parse.unquote_plus(text, errors="replace")


_PARTS: Final = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")
_HEX: Final = "%[0-9a-fA-F]{2}"
_OTHER: Final = "\u00a1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff\u3001-\U0010ffff"
_PLAIN: Final = rf"(?:[A-Za-z0-9_\-!.~'()*,;:$&+=@/{_OTHER}]|{_HEX})"
_ANY: Final = rf"(?:[A-Za-z0-9_\-!.~'()*,;:$&+=?/\[\]@{_OTHER}]|{_HEX})"
_AUTHORITY: Final = rf"(?:[A-Za-z0-9_\-!.~'()*,;:$&+=@\[\]{_OTHER}]|{_HEX})"
_ADDRESS: Final = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):(?:(?P<opaque>(?!/){_ANY}+)|(?=/)))?"
    rf"(?(opaque)|(?://(?P<authority>{_AUTHORITY}+)(?=[/?#]|\Z)|///?(?=/))?(?!//)(?P<path>{_PLAIN}*)(?:\?(?P<query>{_ANY}*))?)"
    rf"(?:\#(?P<ref>{_ANY}*))?"
)
_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_SERVER: Final = re.compile(
    rf"(?:(?P<user>(?:[A-Za-z0-9_\-!.~'()*;:&=+$,{_OTHER}]|{_HEX})*)@)?"
    rf"(?P<host>(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}|(?:{_LABEL}\.)*[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?"
)


def _parse_url(tried: bool, a: Node, part: Node, key: Node | None = None) -> Node:
    nodes = [a_string(each, "parse_url") for each in (a, part, *([key] if key is not None else []))]

    def one(text: str, wanted: str, name: str | None = None) -> str | None:
        if name is not None and wanted != "QUERY":
            return None
        match = _ADDRESS.fullmatch(text)
        if (
            match is None
            or (not match["scheme"] and re.match("[^/?#]*:", text))
            or (match["scheme"] and not text[len(match["scheme"]) + 1 :].split("#")[0])
        ):
            if tried:
                return None
            raise InvalidValue(f"{text!r} is no URL; use try_parse_url for null instead")
        found = _url_part(match, wanted)
        if name is None or found is None:
            return found
        try:
            inner = re.search(f"(?:&|^){name}=([^&]*)", found)
        except re.error as error:
            raise InvalidValue(f"parse_url takes its key as a regular expression, and {name!r} is none: {error}") from None
        return None if inner is None else inner[1]

    return rowwise(one, STRING, *nodes, raises=not tried or key is not None)


def _url_part(match: re.Match[str], wanted: str) -> str | None:
    server = _SERVER.fullmatch(match["authority"] or "")
    match wanted:
        case "HOST":
            return server and server["host"]
        case "USERINFO":
            return server and server["user"]
        case "FILE":
            query = match["query"]
            return match["path"] if query is None or match["path"] is None else f"{match['path']}?{query}"
    name = {"PATH": "path", "QUERY": "query", "REF": "ref", "PROTOCOL": "scheme", "AUTHORITY": "authority"}.get(wanted)
    return None if name is None else match[name]


# Hashes


def _hash(function: Callable[..., int], bits: int, *args: Node) -> Node:
    """Of all values together, each taken as the seed of the next. A null leaves the seed as it is."""
    steps = [hashed(function, a.type, a.text) for a in args]
    half = 1 << (bits - 1)

    def one(*values: Any) -> int:
        seed = 42
        for step, value in zip(steps, values, strict=True):
            seed = seed if value is None else step(value, seed)
        return seed - 2 * half if seed >= half else seed

    nodes = [op.cast_raw(a, LONG) if pa.types.is_timestamp(a.type) or pa.types.is_duration(a.type) else
             op.cast_raw(a, INT) if pa.types.is_date(a.type) else a for a in args]  # fmt: skip
    return rowwise(one, INT if bits == 32 else LONG, *nodes, nulls=True)


def _valid_text(what: str, a: Node) -> Node:
    """A text is always UTF-8 here; bytes may not be."""
    if a.type == BINARY:
        return octets.as_text(what, a)
    text = a_string(a, "validate_utf8")
    return rowwise(lambda v: True, BOOL, text) if what == "valid" else text


_BASE_32: Final = {letter: at % 32 for at, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567abcdefghijklmnopqrstuvwxyz")}
_BYTES_OF: Final = (0, 1, 1, 1, 2, 3, 3, 4)
"""How many bytes so many digits of a last group make."""


def _from_base32(text: str) -> bytes:
    """As the decoder that Spark has: what is no digit is passed over, behind `=` nothing is read, a last group may have any length."""
    found, bits, count = bytearray(), 0, 0
    for letter in text.partition("=")[0]:
        if letter not in _BASE_32:
            continue
        bits, count = (bits << 5 | _BASE_32[letter]) & 0xFF_FFFF_FFFF, (count + 1) % 8
        if count == 0:
            found += bits.to_bytes(5, "big")
    size = _BYTES_OF[count]
    over = 2 if count == 1 else 5 * count - 8 * size  # Of one digit alone it drops two bits, too, and the byte begins in the group before.
    return bytes(found + (bits >> over & (1 << 8 * size) - 1).to_bytes(size, "big"))


_DIGESTS: Final = {"SHA-1": "sha1", "SHA1": "sha1", "SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512",
                   "SHA224": "sha224", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512", "MD5": "md5"}  # fmt: skip


def _hmac(key: Node, message: Node, name: Node | None = None) -> Node:
    given = "SHA-256" if name is None else str(constant_of(name, "the digest of hmac")).upper()
    if given not in _DIGESTS:
        raise ExpressionError(f"hmac: the digest must be one of {', '.join(_DIGESTS)}, not {given!r}")
    sign = partial(hmac.digest, digest=_DIGESTS[given])

    def one(secret: bytes, told: bytes) -> bytes:
        if not secret:
            raise InvalidValue("hmac: the key is empty")
        return sign(secret, told)

    return rowwise(one, BINARY, a_string_or_bytes(key, "hmac"), a_string_or_bytes(message, "hmac"), raises=True)


FUNCTIONS: Final = {
    "base64": Signature(lambda a: rowwise(_base64, STRING, a_string_or_bytes(a, "base64")), 1, 1),
    "unbase64": Signature(lambda a: rowwise(_from_base64, BINARY, a_string(a, "unbase64"), raises=True), 1, 1),
    "hex": Signature(_hex, 1, 1),
    "unhex": Signature(lambda a: rowwise(_unhex, BINARY, a_string(a, "unhex")), 1, 1),
    "to_binary": Signature(partial(_to_binary, False), 1, 2),
    "try_to_binary": Signature(partial(_to_binary, True), 1, 2),
    "encode": Signature(_encode, 2, 2),
    "decode": Signature(_decode, 2, MANY),
    "url_encode": Signature(lambda a: rowwise(_url_encode, STRING, a_string(a, "url_encode")), 1, 1),
    "url_decode": Signature(lambda a: rowwise(partial(_url_decode, False), STRING, a_string(a, "url_decode"), raises=True), 1, 1),
    "try_url_decode": Signature(lambda a: rowwise(partial(_url_decode, True), STRING, a_string(a, "try_url_decode")), 1, 1),
    "parse_url": Signature(partial(_parse_url, False), 2, 3),
    "try_parse_url": Signature(partial(_parse_url, True), 2, 3),
    "hash": Signature(partial(_hash, murmur, 32), 1, MANY),
    "xxhash64": Signature(partial(_hash, xxhash, 64), 1, MANY),
    **{name: Signature(partial(_valid_text, what), 1, 1) for name, what in (
        ("is_valid_utf8", "valid"), ("make_valid_utf8", "make"), ("validate_utf8", "check"), ("try_validate_utf8", "try"))},
    "to_base32": Signature(lambda a: rowwise(lambda v: base64.b32encode(v).decode(), STRING, a_string_or_bytes(a, "to_base32")), 1, 1),
    "from_base32": Signature(lambda a: rowwise(_from_base32, BINARY, a_string(a, "from_base32")), 1, 1),
    "hmac": Signature(_hmac, 2, 3),
}  # fmt: skip
