"""Regular expressions as Java means them, which are Spark's, for RE2 and for Python.

A pattern is read once: its flags are written out where they hold, and what RE2 or Python mean differently (points, white space, letters of
both cases, ends of lines) is written as what Java means. What cannot be is refused, with what to write in its place. `$` stands before
the last end of a line, too, and RE2 cannot look ahead. So a pattern that has one is RE2's for texts in which that makes no difference,
and Python's for the others (`Pattern.apart`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenflow.errors import ExpressionError
from evenflow.query.sql.node import Kernel, Value

LINE_ENDS: Final = (0x0A, 0x0D, 0x85, 0x2028, 0x2029)
_TOP: Final = 0x10FFFF
_SETS: Final = {
    "s": ((9, 13), (32, 32)),
    "v": ((10, 13), (0x85, 0x85), (0x2028, 0x2029)),
    "h": ((9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F),
          (0x3000, 0x3000)),
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}  # fmt: skip
"""What the escapes of sets are in Java, by code points. Those of the capital letters are all others."""
_CONTROLS: Final = {"t": 9, "n": 10, "f": 12, "r": 13, "a": 7, "e": 27}
_PLAIN: Final = re.compile(r"[\w ,;:/=@#%&<>'\"~`!-]*")
_TIMES: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_GROUP: Final = re.compile(r"\?(?:<([A-Za-z][A-Za-z0-9]*)>|([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)]))")
_CODE: Final = re.compile(r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\}|0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY: Final = re.compile(r"[pP](?:\{\^?\w+\}|[A-Z])")

_END: Final = r"(?:(?=(?:\r\n|[\r\u0085\u2028\u2029])?\Z)|(?<!\r)(?=\n\Z))"
_LINE_END: Final = r"(?:(?=[\r\u0085\u2028\u2029]|\Z)|(?<!\r)(?=\n))"
_LINE_START: Final = r"(?:(?!\Z)(?:\A|(?<=[\n\u0085\u2028\u2029])|(?<=\r)(?!\n)))"
"""`$`, and `$` and `^` with the flag m, for Python. No line begins at the end of the text."""
_ENDED: Final = r"[\n\r\x{85}\x{2028}\x{2029}]\z"
_LAST_BYTES: Final = np.isin(np.arange(256), [chr(code).encode()[-1] for code in LINE_ENDS])
_LAST: Final = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_LINES: Final = r"[\n\r\x{85}\x{2028}\x{2029}]|\A\z"


@dataclass(frozen=True, slots=True)
class Pattern:
    """java: as it was written. re2, python: that means the same there; RE2 only of texts that `apart`, one of RE2's, is not found in.
    names: the numbers of named groups. groups: how many there are. test: for RE2 and any text, where Python has no such pattern, if it only
    matters whether there is a match."""

    java: str
    re2: str
    python: str
    apart: str | None = None
    names: Mapping[str, int] = field(default_factory=dict)
    groups: int = 0
    test: str | None = None

    def compiled(self, what: str) -> re.Pattern[str]:
        """For Python, which knows no classes of Unicode."""
        try:
            return re.compile(self.python, re.ASCII)
        except re.error as error:
            raise ExpressionError(f"{what}: the pattern {self.java!r} is not available: {error}") from None

    def kernel(self, quick: Kernel, slow: Callable[[str], Any], type_: pa.DataType) -> Kernel:
        """quick, by RE2, but slow, by Python, for each text in which they differ."""
        if self.apart is None:
            return quick
        apart = pc.MatchSubstringOptions(self.apart)

        def kernel(value: Value) -> Value:
            if self.apart == _ENDED and isinstance(value, pa.StringArray) and not _may_end(value):
                return quick(value)
            odd = pc.call_function("match_substring_regex", [value], apart)
            if isinstance(value, pa.Scalar):
                return pa.scalar(slow(value.as_py()), type_) if odd.as_py() else quick(value)
            if not pc.any(odd).as_py():
                return quick(value)
            if isinstance(value, pa.ChunkedArray):
                value, odd = value.combine_chunks(), odd.combine_chunks()
            rows = pc.indices_nonzero(odd).to_numpy()
            places = np.arange(len(value))
            places[rows] = len(value) + np.arange(len(rows))
            found = pa.array([slow(text) for text in value.take(pa.array(rows)).to_pylist()], type_)
            return pa.concat_arrays([quick(value), found]).take(pa.array(places))

        return kernel


def _may_end(texts: pa.StringArray) -> bool:
    """Whether some text may end with the end of a line, by its last byte: a tenth of what it costs to look for sure."""
    _, places, letters = texts.buffers()
    if letters is None or not len(texts):
        return False
    offsets = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    ends = offsets[1:][offsets[1:] > offsets[:-1]] - 1
    return bool(_LAST_BYTES[np.frombuffer(letters, np.uint8)[ends]].any())


def java_pattern(text: str, what: str) -> Pattern:
    """The pattern of Java, read. what: for messages. Raises ExpressionError for what only Java can do."""
    return Pattern(text, text, text) if _PLAIN.fullmatch(text) and text.isascii() else _Reader(text, what).pattern()


class _Reader:
    """at: the next character. re2, python: what is written so far. flags: that hold here, of i, m and s; outer: those of the groups around.
    ends, lines: it has `$`, or is about lines. last: it ends with `$`. properties: it has classes of Unicode."""

    def __init__(self, text: str, what: str) -> None:
        self.text, self.what, self.at = text, what, 0
        self.re2, self.python = list[str](), list[str]()
        self.flags, self.outer = frozenset[str](), list[frozenset[str]]()
        self.names, self.groups = dict[str, int](), 0
        self.ends, self.lines, self.last, self.properties = False, False, False, False

    def refuse(self, construct: str, instead: str) -> NoReturn:
        raise ExpressionError(f"{self.what}: the pattern {self.text!r} is not available: {construct}; {instead}")

    def pattern(self) -> Pattern:
        while self.at < len(self.text):
            here = self.text[self.at]
            self.at += 1
            self._one(here)
        apart = _LINES if self.lines else _ENDED if self.ends else None
        re2 = "".join(self.re2)
        # A single `$` at the end of the pattern may take the end of the line, as nobody looks at it.
        test = re2[:-2] + _LAST if self.last and apart == _ENDED and re2.count(r"\z") == 1 and self.properties else None
        return Pattern(self.text, re2, "".join(self.python), apart, self.names, self.groups, test)

    def _write(self, re2: str, python: str | None = None) -> None:
        self.re2.append(re2)
        self.python.append(re2 if python is None else python)

    def _one(self, here: str) -> None:
        if here == "\\":
            self._escaped()
        elif here == "[":
            self._class()
        elif here == "(":
            self._open()
        elif here == ")":
            self.flags = self.outer.pop() if self.outer else frozenset()
            self._write(")")
        elif here == ".":
            if "s" in self.flags:
                self._write("(?s:.)")
            else:
                self._set([(code, code) for code in LINE_ENDS], negated=True)
        elif here == "$":
            self._end("m" in self.flags)
        elif here == "^":
            self.lines |= "m" in self.flags
            self._write(r"\A", _LINE_START if "m" in self.flags else r"\A")
        elif here in "*+?{":
            self._times(here)
        elif here == "|":
            self._write("|")
        else:
            self._letter(here)

    def _end(self, of_line: bool) -> None:
        self.lines |= of_line
        self.ends, self.last = True, self.at >= len(self.text)
        self._write(r"\z", _LINE_END if of_line else _END)

    def _times(self, here: str) -> None:
        if here == "{":
            found = _TIMES.match(self.text, self.at - 1)
            if found is None:
                self.refuse("'{' begins how often something comes, such as {2} or {2,3}", "write \\{ for the character")
            here, self.at = found.group(), found.end()
        following = self.text[self.at : self.at + 1]
        if following == "+":
            self.refuse(f"{here + '+'!r} gives nothing back (possessive)", f"write {here!r}")
        self.at += following == "?"
        self._write(here + following.strip() if following == "?" else here)

    def _letter(self, letter: str) -> None:
        if "i" in self.flags and letter.isascii() and letter.isalpha():
            self._write(f"[{letter.lower()}{letter.upper()}]")
        else:
            self._write("\\" + letter if letter in r"\.+*?()|[]{}^$" else letter)

    def _open(self) -> None:
        self.outer.append(self.flags)
        if self.text[self.at : self.at + 1] != "?":
            self.groups += 1
            self._write("(")
            return
        found = _GROUP.match(self.text, self.at)
        if found is None:
            start = self.text[self.at - 1 : self.at + 3]
            if start.startswith("(?P"):
                self.refuse(f"Java has no {start!r}", "write (?<name>...), with a name of letters and digits")
            self.refuse(f"{start!r}: it cannot look around, and takes back what it has tried", "write it without")
        name, on, off, last = found.groups()
        self.at = found.end()
        if name is not None:
            self.groups += 1
            if name in self.names:
                self.refuse(f"two groups are named {name!r}", "rename one")
            self.names[name] = self.groups
            self._write("(")
            return
        for flag in (on or "") + (off or ""):
            if flag not in "ims":
                self.refuse(f"the flag {flag!r} is none of i, m and s", "write out what it means")
        self.flags = (self.flags | set(on or "")) - set(off or "")
        if last == ")" and self.text[self.at : self.at + 1] in tuple("*+?{"):
            self.refuse("flags cannot be repeated", "write what is to be")
        if last == ")":
            self.outer.pop()
            self._write("(?:)" if self.re2 else "")
        else:
            self._write("(?:")

    def _escaped(self) -> None:
        if self.at >= len(self.text):
            self.refuse("it ends with a backslash", "write two for the character")
        here = self.text[self.at]
        if (code := self._code()) is not None:
            self._letter(chr(code))
        elif here.lower() in _SETS:
            self.at += 1
            self._set(list(_SETS[here.lower()]), here.isupper(), plain=here.lower() in "dw")
        elif here == "Q":
            self._quoted()
        elif here in "pP":
            self._write(self._property())
        elif here == "Z":
            self.at += 1
            self._end(False)
        elif here in "AbBz":
            self.at += 1
            self._write("\\" + here, r"\Z" if here == "z" else None)
        elif here.isascii() and here.isalnum():
            self.refuse(f"'\\{here}'", "groups cannot be repeated" if here.isdigit() else "write what it stands for")
        else:
            self.at += 1
            self._letter(here)

    def _code(self) -> int | None:
        """A character that an escape names, or None."""
        if (found := _CODE.match(self.text, self.at)) is not None:
            self.at = found.end()
            code = int(found[4], 8) if found[4] else int(found[1] or found[2] or found[3], 16)
            if code > _TOP or 0xD800 <= code < 0xE000:
                self.refuse(f"there is no character {code:#x}", "write \\x{...} of one that there is")
            return code
        control = _CONTROLS.get(self.text[self.at])
        self.at += control is not None
        return control

    def _property(self) -> str:
        found = _PROPERTY.match(self.text, self.at)
        if found is None:
            self.refuse("'\\p' without a class", "write \\p{L}")
        if "i" in self.flags and found.group()[1:].strip("{^}") in ("Lu", "Ll", "Lt"):
            self.refuse(f"'\\{found.group()}' with the flag i", "write \\p{L}")
        self.at, self.properties = found.end(), True
        return "\\" + found.group()

    def _quoted(self) -> None:
        end = self.text.find("\\E", self.at)
        for letter in self.text[self.at + 1 : end if end >= 0 else None]:
            self._letter(letter)
        self.at = end + 2 if end >= 0 else len(self.text)

    def _set(self, ranges: list[tuple[int, int]], negated: bool, plain: bool = False) -> None:
        """A class of these characters, or, plain, the escape itself, which means the same everywhere."""
        if plain:
            self._write("\\" + self.text[self.at - 1])
            return
        mark = "^" if negated else ""
        self._write(f"[{mark}{_members(ranges, _re2_letter)}]", f"[{mark}{_members(ranges, _python_letter)}]")

    def _class(self) -> None:
        negated = self.text[self.at : self.at + 1] == "^"
        self.at += negated
        ranges, classes, first = list[tuple[int, int]](), list[str](), True
        while True:
            if self.at >= len(self.text):
                self.refuse("a '[' is not closed", "write \\[ for the character")
            here = self.text[self.at]
            if here == "]" and not first:
                self.at += 1
                break
            first = False
            self._member(ranges, classes)
        if "i" in self.flags:
            ranges += _other_cases(ranges)
        mark, more = "^" if negated else "", "".join(classes)
        self._write(f"[{mark}{_members(ranges, _re2_letter)}{more}]", f"[{mark}{_members(ranges, _python_letter)}{more}]")

    def _member(self, ranges: list[tuple[int, int]], classes: list[str]) -> None:
        """What a class has next, which may be a range."""
        here = self.text[self.at]
        following = self.text[self.at + 1 : self.at + 2]
        if here == "\\" and following.lower() in _SETS and following:
            self.at += 2
            if following.lower() in "dw":
                classes.append("\\" + following)
            else:
                found = list(_SETS[following.lower()])
                ranges += _others(found) if following.isupper() else found
            return
        if here == "\\" and following in ("p", "P"):
            self.at += 1
            classes.append(self._property())
            return
        low = self._of_class()
        if self.text[self.at : self.at + 1] != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            ranges.append((low, low))
            return
        self.at += 1
        high = self._of_class()
        if high < low:
            self.refuse(f"the range {chr(low)}-{chr(high)} ends before it begins", "turn it round")
        ranges.append((low, high))

    def _of_class(self) -> int:
        """A single character of a class."""
        here = self.text[self.at]
        if here == "[":
            named = self.text[self.at + 1 : self.at + 2] == ":"
            self.refuse(
                "'[' in a class begins a class inside it" + (", and has no names such as [:alpha:]" if named else ""),
                "write \\p{L} or the ranges, as a-zA-Z" if named else "write one class, or \\[ for the character",
            )
        if self.text.startswith("&&", self.at):
            self.refuse("'&&' in a class takes what both sides have", "write the ranges that are meant")
        self.at += 1
        if here != "\\":
            return ord(here)
        if self.at >= len(self.text):
            self.refuse("it ends with a backslash", "write two for the character")
        if (code := self._code()) is not None:
            return code
        here = self.text[self.at]
        if here.isascii() and here.isalnum():
            self.refuse(f"'\\{here}' in a class", "write what it stands for")
        self.at += 1
        return ord(here)


def _members(ranges: list[tuple[int, int]], letter: Callable[[int], str]) -> str:
    return "".join(letter(low) if low == high else f"{letter(low)}-{letter(high)}" for low, high in ranges)


def _re2_letter(code: int) -> str:
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{code:x}}}"


def _python_letter(code: int) -> str:
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else f"\\U{code:08x}"


def _others(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """All characters that are not in the ranges, which are in order."""
    starts = [0, *[high + 1 for _, high in ranges]]
    return [(low, high) for low, high in zip(starts, [*[low - 1 for low, _ in ranges], _TOP], strict=True) if low <= high]


def _other_cases(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The letters of ASCII of the other case: Java's flag i knows no others."""
    made = [(max(low, a) + shift, min(high, a + 25) + shift) for low, high in ranges for a, shift in ((65, 32), (97, -32))]
    return [(low, high) for low, high in made if low <= high]


def replacement(text: str, pattern: Pattern) -> list[str | int]:
    r"""The parts of a replacement: texts, and numbers of groups, which are `$1` and `${name}`. As many digits are of the number as there
    are groups for. Raises ExpressionError where Java raises."""

    def refuse(problem: str) -> NoReturn:
        raise ExpressionError(f"regexp_replace: the replacement {text!r} {problem}")

    parts, at = list[str | int](), 0
    while at < len(text):
        here, following = text[at], text[at + 1 : at + 2]
        at += 1
        if here == "\\":
            if not following:
                refuse("ends with a backslash; write two for the character")
            parts.append(following)
            at += 1
        elif here != "$":
            parts.append(here)
        elif following == "{":
            name, closed, _ = text[at + 1 :].partition("}")
            if not closed or name not in pattern.names:
                refuse(f"names a group {name!r}, and the pattern {pattern.java!r} has {', '.join(pattern.names) or 'none with a name'}")
            parts.append(pattern.names[name])
            at += len(name) + 2
        else:
            if not (following.isascii() and following.isdigit()):
                refuse("has a $ that names no group; write \\$ for the character")
            number = int(following)
            at += 1
            if number > pattern.groups:
                refuse(f"names group {number}, and the pattern {pattern.java!r} has {pattern.groups} groups")
            while text[at : at + 1] in tuple("0123456789") and 10 * number + int(text[at]) <= pattern.groups:
                number, at = 10 * number + int(text[at]), at + 1
            parts.append(number)
    return parts


__all__ = ["Pattern", "java_pattern", "replacement"]
