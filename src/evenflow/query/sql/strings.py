"""Functions of strings. Positions and lengths count characters, from 1, as in SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ExpressionError, TypeMismatch
from evenflow.query.sql import octets
from evenflow.query.sql import operators as op
from evenflow.query.sql.arrays import concatenated, reversed_array, words_joined
from evenflow.query.sql.casts import cast
from evenflow.query.sql.collated import FOLDED, folded
from evenflow.query.sql.matching import looks_around, matches, may_be_empty, replaced
from evenflow.query.sql.node import InvalidValue, Node, Value, call, choose, lift, literal, rowwise
from evenflow.query.sql.patterns import Pattern, java_pattern, replacement
from evenflow.query.sql.signature import MANY, Signature, constant_of
from evenflow.query.sql.types import BINARY, BOOL, INT, STRING, floating, integral, name_of

_REST: Final = 2**31 - 1
"""Length of "everything from there on"."""


def _text(node: Node, what: str) -> Node:
    """Anything atomic is text where text is wanted, as in Spark."""
    if pa.types.is_nested(node.type):
        raise TypeMismatch(f"{what} needs a string, but {node.text} is {name_of(node.type)}")
    return cast(node, STRING)


def _whole(node: Node, what: str) -> Node:
    if floating(node.type) or integral(node.type) or node.type in (STRING, pa.null()):
        return cast(node, INT)
    raise TypeMismatch(f"{what} needs a whole number, but {node.text} is {name_of(node.type)}")


def _of_text(name: str, kernel: Callable[[Value], Value], type: pa.DataType = STRING) -> Signature:
    return Signature(lambda a: lift(kernel, type, _text(a, name)), 1, 1)


def _by_row(name: str, function: Callable[[str], Any], type: pa.DataType = STRING) -> Signature:
    return Signature(lambda a: rowwise(function, type, _text(a, name)), 1, 1)


def _cased(name: str, function: Callable[[str], str]) -> Signature:
    """upper and lower: Arrow maps character by character, but outside ASCII one may become several (ß is SS)."""
    quick = call(f"ascii_{name}")

    def kernel(value: Value) -> Value:
        if isinstance(value, pa.Scalar):
            return pa.scalar(function(value.as_py()) if value.is_valid else None, STRING)
        if pc.all(pc.string_is_ascii(value), min_count=0).as_py():
            return quick(value)
        return pa.array([None if v is None else function(v) for v in value.to_pylist()], STRING)

    return _of_text(name, kernel)


def _length(a: Node) -> Node:
    """Characters of a string, bytes of a binary."""
    if a.type == BINARY:
        return lift(call("binary_length"), INT, a)
    return lift(call("utf8_length"), INT, _text(a, "length"))


# Parts


def text_part(text: str, position: int, length: int) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def _substring(a: Node, position: Node, length: Node | None = None) -> Node:
    position = _whole(position, "substring")
    length = literal(pa.scalar(_REST, INT)) if length is None else _whole(length, "substring")
    if octets.is_octets(a):
        return octets.part(a, position, length)
    a = _text(a, "substring")
    first, count = (n.constant.as_py() if n.constant is not None else None for n in (position, length))
    if first is None or count is None:
        return rowwise(text_part, STRING, a, position, length)
    if count <= 0:
        return lift(lambda v: pc.utf8_slice_codeunits(v, 0, 0), STRING, a)
    if first >= 0:
        start = max(first - 1, 0)
        return lift(call("utf8_slice_codeunits", pc.SliceOptions(start, min(start + count, _REST))), STRING, a)
    stop = first + count
    return lift(call("utf8_slice_codeunits", pc.SliceOptions(first, _REST if stop >= 0 else stop)), STRING, a)


def _left(a: Node, count: Node) -> Node:
    return _substring(a, literal(pa.scalar(1, INT)), count)


def _right(a: Node, count: Node) -> Node:
    count = _whole(count, "right")
    a = _text(a, "right")
    if count.constant is None or not count.constant.is_valid:
        return rowwise(lambda text, n: text[-n:] if n > 0 else "", STRING, a, count)
    size = count.constant.as_py()
    options = pc.SliceOptions(-size, _REST) if size > 0 else pc.SliceOptions(0, 0)
    return lift(call("utf8_slice_codeunits", options), STRING, a)


def _substring_index(text: str, mark: str, count: int) -> str:
    if not mark or count == 0:
        return ""
    parts = text.split(mark)
    return mark.join(parts[:count] if count > 0 else parts[count:])


# Putting together


def _concat(*args: Node) -> Node:
    if any(pa.types.is_list(a.type) for a in args):
        return concatenated(*args)
    if octets.is_octets(*args):
        return octets.joined(*args)
    nodes = [_text(a, "concat") for a in args]
    if len(nodes) == 1:
        return nodes[0]
    options = pc.JoinOptions(null_handling="emit_null")
    # Spark computes all of them, even if one is null.
    return lift(call("binary_join_element_wise", options), STRING, *nodes, literal(pa.scalar("")), strict=False)


def _concat_ws(separator: Node, *args: Node) -> Node:
    """Nulls are skipped, unless the separator is null. An array counts as its elements."""
    separator = _text(separator, "concat_ws")
    if any(pa.types.is_list(a.type) for a in args):
        return words_joined(separator, [a if pa.types.is_list(a.type) else _text(a, "concat_ws") for a in args])
    nodes = [_text(a, "concat_ws") for a in args]
    if not nodes:
        return lift(lambda v: pc.if_else(pc.is_valid(v), "", v), STRING, separator)
    join = call("binary_join_element_wise", pc.JoinOptions(null_handling="skip"))

    def kernel(*values: Value) -> Value:
        """Arrow leaves out the rows of which every value is null: the first of them is then the empty text that comes out."""
        first, *rest = values[:-1]
        missing = pc.is_null(first)
        for value in rest:
            missing = pc.and_(missing, pc.is_null(value))
        return join(pc.if_else(missing, "", first), *rest, values[-1])

    return lift(kernel, STRING, *nodes, separator, strict=False)


def _pad(side: str, a: Node, width: Node, fill: Node | None = None) -> Node:
    """To exactly `width` characters: longer strings are cut."""
    width = _whole(width, side)
    if octets.is_octets(a) and (fill is None or octets.is_octets(fill)):
        return octets.padded(side == "lpad", a, width, fill)
    a = _text(a, side)
    fill = literal(pa.scalar(" ")) if fill is None else _text(fill, side)
    size, mark = (n.constant.as_py() if n.constant is not None else None for n in (width, fill))
    if size is not None and mark is not None and len(mark) == 1 and size > 0:
        pad = call("utf8_lpad" if side == "lpad" else "utf8_rpad", pc.PadOptions(size, mark))
        cut = call("utf8_slice_codeunits", pc.SliceOptions(0, size))
        return lift(lambda v: cut(pad(v)), STRING, a)
    return rowwise(partial(_padded, side == "lpad"), STRING, a, width, fill)


def _padded(before: bool, text: str, size: int, mark: str) -> str:
    missing = size - len(text)
    if missing <= 0:
        return text[: max(size, 0)]
    extra = (mark * (missing // len(mark) + 1))[:missing] if mark else ""
    return extra + text if before else text + extra


def _trim(name: str, a: Node, characters: Node | None = None) -> Node:
    """Blanks only, not all white space, as in Spark."""
    a, marks = _text(a, name), literal(pa.scalar(" ")) if characters is None else _text(characters, name)
    ends = {"btrim": str.strip, "trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}[name]
    if marks.constant is None or not marks.constant.as_py():
        return rowwise(ends, STRING, a, marks)
    kernel = {"btrim": "utf8_trim", "trim": "utf8_trim", "ltrim": "utf8_ltrim", "rtrim": "utf8_rtrim"}[name]
    return lift(call(kernel, pc.TrimOptions(marks.constant.as_py())), STRING, a)


def _trim_function(name: str) -> Callable[..., Node]:
    """As a function, ltrim('xa', 'x') and Spark's older ltrim('x', 'xa') are told apart by their order: the characters come first."""

    def build(a: Node, b: Node | None = None) -> Node:
        return _trim(name, a) if b is None else _trim(name, b, a)

    return build


# Searching


def _find(a: Node, part: Node, start: Node | None = None, which: Node | None = None) -> Node:
    """Position of the first occurrence, from 1; 0 if there is none. start: from where on, backwards where it is below 0. which: of them."""
    if start is not None:
        more = [_whole(each, "instr") for each in (start, *([] if which is None else [which]))]
        return rowwise(_find_from, INT, _text(a, "instr"), _text(part, "instr"), *more, raises=True)
    return rowwise(lambda text, mark: text.find(mark) + 1, INT, _text(a, "instr"), _text(part, "instr"))


def _find_from(text: str, mark: str, start: int, which: int = 1) -> int:
    if which < 1:
        raise InvalidValue(f"instr counts occurrences from 1, and {which} is none of them")
    if not mark and -start > len(text):
        return 1
    if start == 0 or abs(start) > len(text):
        return 0
    at = start - 1 if start > 0 else len(text) + start
    while True:
        at = text.find(mark, at) if start > 0 else text.rfind(mark, 0, at + len(mark))
        if at < 0 or which == 1:
            return at + 1
        which, at = which - 1, at + 1 if start > 0 else at - 1
        if at < 0:
            return 0


def _locate(part: Node, a: Node, start: Node | None = None) -> Node:
    if start is None:
        return rowwise(lambda mark, text: text.find(mark) + 1, INT, _text(part, "locate"), _text(a, "locate"))

    def seek(at: int, mark: str, text: str) -> int:
        return 0 if at < 1 else text.find(mark, at - 1) + 1 if mark else 1

    # As Spark, which looks at the start first: without one nothing is found, not even null, and nothing else is computed.
    at = _whole(start, "locate")
    found = rowwise(seek, INT, at, _text(part, "locate"), _text(a, "locate"))
    return choose([(op.is_null(at), literal(pa.scalar(0, INT)))], found)


def _test(kernel: str, function: Callable[[str, str], bool], a: Node, part: Node) -> Node:
    if octets.is_octets(a, part):
        whole: Any = {"starts_with": bytes.startswith, "ends_with": bytes.endswith, "match_substring": bytes.__contains__}[kernel]
        return octets.test(whole, a, part)
    a, part = _text(a, kernel), _text(part, kernel)
    if part.constant is not None and part.constant.is_valid:
        return lift(call(kernel, pc.MatchSubstringOptions(part.constant.as_py())), BOOL, a)
    return rowwise(function, BOOL, a, part)


def _replace(a: Node, old: Node, new: Node | None = None) -> Node:
    a, old = _text(a, "replace"), _text(old, "replace")
    new = literal(pa.scalar("")) if new is None else _text(new, "replace")
    values = [n.constant.as_py() if n.constant is not None else None for n in (old, new)]
    if values[0] and values[1] is not None:
        return lift(call("replace_substring", pc.ReplaceSubstringOptions(*values)), STRING, a)
    return rowwise(lambda text, mark, other: text.replace(mark, other) if mark else text, STRING, a, old, new)


# Patterns


def _like(fold: bool, a: Node, pattern: Node, escape: Node | None = None) -> Node:
    name = "ilike" if fold else "like"
    a, pattern = _text(a, name), _text(pattern, name)
    mark = "\\" if escape is None else constant_of(escape, "the ESCAPE character")
    if not isinstance(mark, str) or len(mark) != 1:
        raise ExpressionError(f"the ESCAPE character must be one character, not {mark!r}")
    matcher = partial(_like_regex, mark, fold)
    if pattern.constant is not None and pattern.constant.is_valid:
        regex = re2_options(matcher(pattern.constant.as_py()).pattern, fold)
        return lift(call("match_substring_regex", regex), BOOL, a)
    return rowwise(lambda text, like: matcher(like).search(text) is not None, BOOL, a, pattern, raises=True)


def _like_regex(mark: str, fold: bool, pattern: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression that Python and RE2 read alike."""
    out, i = [], 0
    while i < len(pattern):
        here = pattern[i]
        if here == mark:
            following = pattern[i + 1 : i + 2]
            if following not in ("_", "%", mark):
                raise InvalidValue(f"LIKE pattern {pattern!r}: the escape character {mark!r} may only stand before _, % or itself")
            out.append(_quoted(following))
            i += 1
        else:
            out.append({"%": "(?s:.*)", "_": "(?s:.)"}.get(here) or _quoted(here))
        i += 1
    return re.compile(r"\A" + "".join(out) + (r"\Z"), re.IGNORECASE if fold else 0)


def _quoted(character: str) -> str:
    return "\\" + character if character in r"\.+*?()|[]{}^$" else character


def re2_options(pattern: str, fold: bool = False) -> pc.MatchSubstringOptions:
    return pc.MatchSubstringOptions(re.sub(r"\\Z$", r"\\z", pattern), ignore_case=fold)


def pattern_of(node: Node, what: str) -> Pattern:
    """A constant regular expression of Java, checked now. RE2 has no look-around and no back-references."""
    text = constant_of(node, f"the pattern of {what}")
    if not isinstance(text, str):
        raise TypeMismatch(f"the pattern of {what} must be a string")
    pattern = java_pattern(text, what)
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern.re2)
    except pa.ArrowInvalid as error:
        raise ExpressionError(f"{what}: the pattern {text!r} is not available: {error}") from None
    return pattern


def _rlike(a: Node, pattern: Node) -> Node:
    mark = pattern_of(pattern, "rlike")
    if mark.test is not None:
        return lift(call("match_substring_regex", pc.MatchSubstringOptions(mark.test)), BOOL, _text(a, "rlike"))
    quick, slow = call("match_substring_regex", pc.MatchSubstringOptions(mark.re2)), mark.compiled("rlike") if mark.apart else None
    return lift(mark.kernel(quick, lambda text: slow is not None and slow.search(text) is not None, BOOL), BOOL, _text(a, "rlike"))


def _regexp_replace(a: Node, pattern: Node, new: Node) -> Node:
    text = constant_of(new, "the replacement of regexp_replace")
    if not isinstance(text, str):
        raise TypeMismatch("the replacement of regexp_replace must be a string")
    mark = pattern_of(pattern, "regexp_replace")
    parts = replacement(text, mark)
    if may_be_empty(mark) or any(isinstance(part, int) and part > 9 for part in parts):  # Of matches of nothing RE2 finds fewer than Java.
        return rowwise(partial(replaced, mark.compiled("regexp_replace"), _expanded(parts)), STRING, _text(a, "regexp_replace"))
    given = "".join(f"\\{part}" if isinstance(part, int) else part.replace("\\", "\\\\") for part in parts)
    quick = call("replace_substring_regex", pc.ReplaceSubstringOptions(mark.re2, given))
    if mark.apart is None:
        return lift(quick, STRING, _text(a, "regexp_replace"))
    slow = partial(mark.compiled("regexp_replace").sub, _expanded(parts))
    return lift(mark.kernel(quick, slow, STRING), STRING, _text(a, "regexp_replace"))


def _expanded(parts: Sequence[str | int]) -> Callable[[re.Match[str]], str]:
    """What Java's replacement is for a match."""
    return lambda found: "".join((found[part] or "") if isinstance(part, int) else part for part in parts)


def _regexp_extract(a: Node, pattern: Node, group: Node | None = None) -> Node:
    """The group of the first match; empty if there is none."""
    number = 1 if group is None else constant_of(group, "the group of regexp_extract")
    mark = pattern_of(pattern, "regexp_extract")
    if not isinstance(number, int) or not 0 <= number <= mark.groups:
        raise ExpressionError(f"regexp_extract: the pattern {mark.java!r} has groups 0 to {mark.groups}, not {number}")
    extract = call("extract_regex", pc.ExtractRegexOptions(f"(?P<g0>{_named_groups(mark.re2)})"))

    def kernel(value: Value) -> Value:
        if isinstance(value, pa.Scalar):
            return kernel(pa.array([value.as_py()], STRING))[0]
        found = pc.struct_field(extract(value), [number])
        return pc.if_else(pc.is_valid(value), pc.coalesce(found, pa.scalar("")), pa.scalar(None, STRING))

    if mark.apart is None:
        return lift(kernel, STRING, _text(a, "regexp_extract"))
    slow = mark.compiled("regexp_extract")
    first = lambda text: "" if (found := slow.search(text)) is None else found[number] or ""  # noqa: E731
    return lift(mark.kernel(kernel, first, STRING), STRING, _text(a, "regexp_extract"))


def _named_groups(pattern: str) -> str:
    """The pattern with its groups named g1, g2, ..., as Arrow wants them."""
    out, count, bracket, i = [], 0, False, 0
    while i < len(pattern):
        here = pattern[i]
        if here == "\\":
            out.append(pattern[i : i + 2])
            i += 2
            continue
        bracket = here == "[" or (bracket and here != "]")
        if here == "(" and not bracket and pattern[i + 1 : i + 2] != "?":
            count += 1
            here = f"(?P<g{count}>"
        out.append(here)
        i += 1
    return "".join(out)


def _split(a: Node, pattern: Node, limit: Node | None = None) -> Node:
    parts = -1 if limit is None else constant_of(limit, "the limit of split")
    if not isinstance(parts, int) or isinstance(parts, bool) or abs(parts) > _REST:
        raise TypeMismatch("the limit of split must be an int")
    mark = pattern_of(pattern, "split")
    if not mark.java:
        return rowwise(partial(_characters, parts), pa.list_(STRING), _text(a, "split"))
    if looks_around(mark) or may_be_empty(mark):  # Arrow splits what is left as a text of its own, and by nothing for ever.
        return rowwise(partial(_split_by_match, mark.compiled("split"), parts), pa.list_(STRING), _text(a, "split"))
    options = pc.SplitPatternOptions(mark.re2, max_splits=parts - 1 if parts > 0 else None)
    return lift(call("split_pattern_regex", options), pa.list_(STRING), _text(a, "split"))


def _characters(limit: int, text: str) -> list[str]:
    """split by '': a character each, and the rest of the text in the last part that the limit allows."""
    count = len(text) if limit <= 0 else min(limit, len(text))
    return [*text[: count - 1], text[count - 1 :]] if text else [""]


def _split_by_match(pattern: re.Pattern[str], limit: int, text: str) -> list[str]:
    """As Java splits: a match of nothing at the start of the text makes no part."""
    parts: list[str] = []
    start = 0
    for match in matches(pattern, text):
        if 0 < limit == len(parts) + 1:
            break
        if match.end() == 0:
            continue
        parts.append(text[start : match.start()])
        start = match.end()
    return [*parts, text[start:]]


# The rest


def _reverse(a: Node) -> Node:
    if octets.is_octets(a):
        return octets.backwards(a)
    return reversed_array(a) if pa.types.is_list(a.type) else lift(call("utf8_reverse"), STRING, _text(a, "reverse"))


def _repeat(a: Node, count: Node) -> Node:
    return rowwise(lambda text, n: text * max(n, 0), STRING, _text(a, "repeat"), _whole(count, "repeat"))


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:].lower() for word in text.split(" "))


def _three(name: str, function: Callable[..., Any]) -> Callable[[Node, Node, Node], Node]:
    return lambda a, b, c: rowwise(function, STRING, _text(a, name), _text(b, name), _whole(c, name))


FUNCTIONS: Final = {
    "upper": _cased("upper", str.upper),
    "ucase": _cased("upper", str.upper),
    "lower": _cased("lower", str.lower),
    "lcase": _cased("lower", str.lower),
    FOLDED: _cased("lower", folded),
    "length": Signature(_length, 1, 1),
    "len": Signature(_length, 1, 1),
    "char_length": Signature(_length, 1, 1),
    "character_length": Signature(_length, 1, 1),
    "octet_length": Signature(lambda a: octets.length(a if octets.is_octets(a) else _text(a, "octet_length")), 1, 1),
    "substring": Signature(_substring, 2, 3),
    "substr": Signature(_substring, 2, 3),
    "left": Signature(_left, 2, 2),
    "right": Signature(_right, 2, 2),
    "substring_index": Signature(_three("substring_index", _substring_index), 3, 3),
    "concat": Signature(_concat, 1, MANY),
    "concat_ws": Signature(_concat_ws, 1, MANY),
    "lpad": Signature(partial(_pad, "lpad"), 2, 3),
    "rpad": Signature(partial(_pad, "rpad"), 2, 3),
    "trim": Signature(_trim_function("trim"), 1, 2),
    "btrim": Signature(partial(_trim, "btrim"), 1, 2),
    "ltrim": Signature(_trim_function("ltrim"), 1, 2),
    "rtrim": Signature(_trim_function("rtrim"), 1, 2),
    "instr": Signature(_find, 2, 4),
    "locate": Signature(_locate, 2, 3),
    "position": Signature(_locate, 2, 3),
    "charindex": Signature(_locate, 2, 3),
    "startswith": Signature(partial(_test, "starts_with", str.startswith), 2, 2),
    "endswith": Signature(partial(_test, "ends_with", str.endswith), 2, 2),
    "contains": Signature(partial(_test, "match_substring", str.__contains__), 2, 2),
    "replace": Signature(_replace, 2, 3),
    "like": Signature(partial(_like, False), 2, 3),
    "ilike": Signature(partial(_like, True), 2, 3),
    "rlike": Signature(_rlike, 2, 2),
    "regexp": Signature(_rlike, 2, 2),
    "regexp_like": Signature(_rlike, 2, 2),
    "regexp_replace": Signature(_regexp_replace, 3, 3),
    "regexp_extract": Signature(_regexp_extract, 2, 3),
    "split": Signature(_split, 2, 3),
    "reverse": Signature(_reverse, 1, 1),
    "repeat": Signature(_repeat, 2, 2),
    "initcap": _by_row("initcap", _initcap),
    "ascii": _by_row("ascii", lambda text: ord(text[0]) if text else 0, INT),
}
