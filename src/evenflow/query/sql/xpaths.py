"""What an XPath finds in a text of XML, by a library of XPath 1.0 over the standard library's parser. Each row is looked at in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql.casts import cast
from evenflow.query.sql.node import InvalidValue, Node, rowwise
from evenflow.query.sql.signature import Signature, constant_of
from evenflow.query.sql.types import BOOL, DOUBLE, FLOAT, INT, LONG, NULL, STRING, bounds, name_of, stringy

_EXTERNAL: Final = re.compile(r"<!DOCTYPE[^>\[]*\b(SYSTEM|PUBLIC)\b|<!ENTITY", re.IGNORECASE)
Find = Callable[[Any], Any]


def _selector(text: str, name: str) -> Find:
    """What finds the path in a document."""
    if find_spec("elementpath") is None:
        raise ExpressionError(f"{name} needs the package elementpath, here and on the executors: pip install 'evenflow[xml]'")
    from elementpath import ElementPathError, XPath1Parser, XPathContext

    try:
        token = XPath1Parser().parse(text)
    except (ElementPathError, ValueError) as error:
        raise ExpressionError(f"{name}: {text!r} is no path of XPath 1.0: {error}") from None

    def find(document: Any) -> Any:
        try:
            return token.get_results(XPathContext(document))
        except (ElementPathError, ValueError, TypeError) as error:
            raise InvalidValue(f"{name}: the path {text!r} cannot be looked for: {error}") from None

    return find


def _document(text: str) -> Any:
    if _EXTERNAL.search(text):
        raise InvalidValue("a text of XML with entities of its own is not read")
    try:
        return ElementTree.ElementTree(ElementTree.fromstring(text))
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidValue(f"{text[:100]!r} is no XML: {error}") from None


def _call(name: str, around: str, type_: pa.DataType, make: Callable[[Any], Any], a: Node, path: Node) -> Node:
    """around: the function of XPath that makes one value of what is found."""
    for node in (a, path):
        if not stringy(node.type) and node.type != NULL:
            raise TypeMismatch(f"{name} needs strings, but {node.text} is {name_of(node.type)}")
    text = constant_of(path, f"the path of {name}")
    if not text:
        return cast(Node(NULL, lambda batch: pa.scalar(None), pa.scalar(None)), type_)
    find = _selector(around.format(text), name)

    def one(given: str) -> Any:
        return make(find(_document(given))) if given else None

    return rowwise(one, type_, cast(a, STRING), raises=True)


def _values(found: Any) -> list[str | None]:
    """Texts and attributes have a value, elements have none."""
    if not isinstance(found, list):
        raise InvalidValue("the path finds one value and no nodes; use xpath_string")
    return [each if isinstance(each, str) else None for each in found]


def _whole(type_: pa.DataType, found: Any) -> int:
    """As Java makes an int or a long of a double, and a short of an int."""
    number = float(found)
    low, high = bounds(LONG if type_ == LONG else INT)
    whole = 0 if math.isnan(number) else low if number < low else high if number > high else int(number)
    return whole if type_ != pa.int16() else (whole + 32768) % 65536 - 32768


_KINDS: Final[dict[str, tuple[str, pa.DataType, Callable[[Any], Any]]]] = {
    "xpath": ("{}", pa.list_(STRING), _values),
    "xpath_boolean": ("boolean({})", BOOL, bool),
    "xpath_double": ("number({})", DOUBLE, float),
    "xpath_number": ("number({})", DOUBLE, float),
    "xpath_float": ("number({})", FLOAT, lambda found: float(np.float32(found))),
    "xpath_long": ("number({})", LONG, partial(_whole, LONG)),
    "xpath_int": ("number({})", INT, partial(_whole, INT)),
    "xpath_short": ("number({})", pa.int16(), partial(_whole, pa.int16())),
    "xpath_string": ("string({})", STRING, str),
}
FUNCTIONS: Final = {name: Signature(partial(_call, name, *kind), 2, 2) for name, kind in _KINDS.items()}
