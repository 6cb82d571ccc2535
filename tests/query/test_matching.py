"""Patterns whose matches may be empty, or depend on where they are: as Java splits by them, and never without an end."""

from __future__ import annotations

import pyarrow as pa
import pytest

from evenflow.errors import ExpressionError
from evenflow.query.expression import compile_expression
from evenflow.query.sql.matching import looks_around, may_be_empty
from evenflow.query.sql.patterns import Pattern, java_pattern

BATCH = pa.record_batch({"s": ["ab cd", "", None, "a,b"]})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (r"split(s, '\\b')", [["ab", " ", "cd", ""], [""], None, ["a", ",", "b", ""]]),
        (r"split(s, '\\b', 2)", [["ab", " cd"], [""], None, ["a", ",b"]]),
        (r"split(s, '\\B')", [["a", "b c", "d"], [""], None, ["a,b"]]),
        (r"split(s, '\\b,?')", [["ab", " ", "cd", ""], [""], None, ["a", "", "b", ""]]),
        (r"split(s, '(?:\\b|,)')", [["ab", " ", "cd", ""], [""], None, ["a", ",", "b", ""]]),
        (r"split(s, ',|$')", [["ab cd", ""], [""], None, ["a", "b", ""]]),
        (r"split(concat('aa', s), '^a')", [["", "aab cd"], ["", "a"], None, ["", "aa,b"]]),
        (r"split(concat('aa', s), '\\ba')", [["", "aab cd"], ["", "a"], None, ["", "aa,b"]]),
        (r"split(s, '\\p{L}+')", [["", " ", ""], [""], None, ["", ",", ""]]),
        (r"split(s, '(?i)B|[\\t ]')", [["a", "", "cd"], [""], None, ["a,", ""]]),
        (r"regexp_replace(s, '(?:\\b|,)', '-')", ["-ab- -cd-", "", None, "-a-,-b-"]),
        (r"regexp_count(s, '\\b|,')", [4, 0, None, 4]),
        (r"regexp_replace(s, '\\b', '|')", ["|ab| |cd|", "", None, "|a|,|b|"]),
    ],
)
def test_as_java_splits(text: str, wanted: list[object]) -> None:
    assert compile_expression(text, BATCH.schema)(BATCH).to_pylist() == wanted


@pytest.mark.parametrize("text", [r"split(s, '\\b\\p{L}*')", "split(s, '[[:alpha:]]*')", r"split(s, '\\b\\p{L}')"])
def test_what_python_cannot_read_is_refused_there(text: str) -> None:
    with pytest.raises(ExpressionError, match="not available"):
        compile_expression(text, BATCH.schema)


def read(text: str) -> Pattern:
    return java_pattern(text, "split")


def test_lengths_and_places_are_told_from_the_pattern() -> None:
    empty = [r"\b", "x*", "a|", "(a|b?)", r"\p{L}*", r"\Qa\E*", "(?i:x?)", r"\z", "$", r"(?:\B)+", "x{0,2}", "(?<n>)"]
    some = ["x", "x+", "a|b", r"\pL", r"\Qab\E*", "(?i)x", "x(?s).", r"\x{10FFFF}", r"\x41", "[]]", r"\.", "[(?i)]"]
    assert [pattern for pattern in empty if not may_be_empty(read(pattern))] == []
    assert [pattern for pattern in some if may_be_empty(read(pattern)) or looks_around(read(pattern))] == []
    assert all(looks_around(read(pattern)) for pattern in [r"\bx", "^x", "x$", r"(?:a|(?:b\B)+)"]) and not looks_around(read(r"[$^]\$"))
