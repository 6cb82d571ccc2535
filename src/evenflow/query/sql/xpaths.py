"""What an XPath finds in a text of XML, by lxml. Each row is looked at in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import InvalidValue, Node, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BOOL, DOUBLE, FLOAT, INT, LONG, NULL, STRING, bounds, name_of, stringy

_OWN_ENTITIES: Final = re.compile(r"<!DOCTYPE[^>\[]*\b(SYSTEM|PUBLIC)\b|<!ENTITY", re.IGNORECASE)
_TOKEN: Final = re.compile(r"""\s+|"[^"]*"|'[^']*'|\d+\.?\d*|\.\d+|::|//|\.\.|<=|>=|!=|[\w.-]+(?::[\w.*-]+)?|.""", re.DOTALL)
_OPERATORS: Final = frozenset(["and", "or", "mod", "div", "|", "+", "-", "=", "!=", "<", "<=", ">", ">=", "/", "//"])
_BEFORE_A_STEP: Final = _OPERATORS | {"@", "::", "(", "[", ","}
Find = Callable[[Any], Any]


def from_the_document(text: str) -> str:
    """The path with `$document` in front of each part that begins at the document: with lxml a path begins at the root element."""
    made, before, operator = list[str](), "", True
    for token in _TOKEN.findall(text):
        if token.isspace():
            made.append(token)
            continue
        if token in ("/", "//") and operator:
            made.append("$document")
        made.append(token)
        # A name or a star behind something that ends a step is an operator, as XPath 1.0 says in 3.7.
        ends_before, before = before not in _BEFORE_A_STEP and before != "", token
        operator = token in ("(", "[", ",") or (token in _OPERATORS | {"*"} and ends_before and token not in ("/", "//"))
        operator = operator or token in _OPERATORS - {"and", "or", "mod", "div", "/", "//"}
    shown = "".join(made)
    return re.sub(r"\$document/(?![\w.@*/])", "$document", shown)


def _selector(text: str, name: str) -> Find:
    """What finds the path in a document."""
    if find_spec("lxml") is None:
        raise ExpressionError(f"{name} needs the package lxml, here and on the executors: pip install 'evenflow[xml]'")
    from lxml import etree

    try:
        path = etree.XPath(from_the_document(text))
    except etree.XPathError as error:
        raise ExpressionError(f"{name}: {text!r} is no path of XPath 1.0: {error}") from None

    def find(given: str) -> Any:
        if _OWN_ENTITIES.search(given):
            raise InvalidValue("a text of XML with entities of its own is not read")
        document = etree.Element("document")
        try:
            document.append(etree.fromstring(given.encode(), etree.XMLParser(resolve_entities=False, no_network=True)))
            return path(document, document=[document])
        except (etree.LxmlError, ValueError) as error:
            raise InvalidValue(f"{name}: {text!r} finds nothing in {given[:100]!r}: {error}") from None

    return find


def _call(name: str, type_: pa.DataType, make: Callable[[Any], Any], a: Node, path: Node) -> Node:
    """make: the value of what is found, a list of nodes, a text, a number or a boolean."""
    for node in (a, path):
        if not stringy(node.type) and node.type != NULL:
            raise TypeMismatch(f"{name} needs strings, but {node.text} is {name_of(node.type)}")
    text = constant_of(path, f"the path of {name}")
    if not text:
        return cast(Node(NULL, lambda batch: pa.scalar(None), pa.scalar(None)), type_)
    find = _selector(str(text), name)

    def one(given: str) -> Any:
        return make(find(given)) if given else None

    return rowwise(one, type_, cast(a, STRING), raises=True)


def _values(found: Any) -> list[str | None]:
    """Texts and attributes have a value, comments too, elements have none."""
    if not isinstance(found, list):
        raise InvalidValue("the path finds one value and no nodes; use xpath_string")
    return [each if isinstance(each, str) else each.text if callable(each.tag) else None for each in found]


def _whole(type_: pa.DataType, found: Any) -> int:
    """As Java makes an int or a long of a double, and a short of an int."""
    number = _number(found)
    low, high = bounds(LONG if type_ == LONG else INT)
    whole = 0 if math.isnan(number) else low if number < low else high if number > high else int(number)
    return whole if type_ != pa.int16() else (whole + 32768) % 65536 - 32768


_NUMBER: Final = re.compile(r"[ \t\r\n]*-?(\d+(\.\d*)?|\.\d+)[ \t\r\n]*", re.ASCII)


def _number(found: Any) -> float:
    """What is found as a number: of nodes that of the first one's text. Without an exponent, which the library would take."""
    if isinstance(found, list):
        found = _text(found)
    if isinstance(found, str):
        return float(found) if _NUMBER.fullmatch(found) else math.nan
    return float(found)


def _text(found: Any) -> str:
    """What is found as a text: of nodes that of the first one."""
    if isinstance(found, list):
        first = found[0] if found else ""
        return str(first) if isinstance(first, str) else "".join(first.itertext())
    if isinstance(found, bool | str):
        return str(found).lower() if isinstance(found, bool) else str(found)
    if found - found != 0:
        return "NaN" if found != found else "Infinity" if found > 0 else "-Infinity"
    return f"{found:.0f}" if found == int(found) else f"{Decimal(repr(found)):f}"


def _holds(found: Any) -> bool:
    return bool(found) and found == found


_KINDS: Final[dict[str, tuple[pa.DataType, Callable[[Any], Any]]]] = {
    "xpath": (pa.list_(STRING), _values),
    "xpath_boolean": (BOOL, _holds),
    "xpath_double": (DOUBLE, _number),
    "xpath_number": (DOUBLE, _number),
    "xpath_float": (FLOAT, lambda found: float(np.float32(_number(found)))),
    "xpath_long": (LONG, partial(_whole, LONG)),
    "xpath_int": (INT, partial(_whole, INT)),
    "xpath_short": (pa.int16(), partial(_whole, pa.int16())),
    "xpath_string": (STRING, _text),
}
FUNCTIONS: Final = {name: Signature(partial(_call, name, *kind), 2, 2) for name, kind in _KINDS.items()}
