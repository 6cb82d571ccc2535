"""Regular expressions are Java's, over texts of one row and over columns. The expected values are Spark 4's, on Java 17."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import ExpressionError
from evenflow.query.expression import compile_expression

SCHEMA = pa.schema({"t": pa.string()})


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def answers(expression: str, *texts: str | None) -> list[Any]:
    return list(compile_expression(expression, SCHEMA)(pa.record_batch({"t": pa.array(texts, pa.string())})).to_pylist())


ANSWERS = [
    ("ab\n", "b$", "x", True, "ax\n", "b", ["a", "\n"]),
    ("a\r\n", "a\\s$", "x", False, "a\r\n", "", ["a\r\n"]),
    ("\r\n", ".", "x", False, "\r\n", "", ["\r\n"]),
    ("a\x0bb", "\\s", "x", True, "axb", "\x0b", ["a", "b"]),
    ("a\nb", "\\v", "x", True, "axb", "\n", ["a", "b"]),
    ("ſ", "(?i)s", "x", False, "ſ", "", ["ſ"]),
    ("É", "(?i)é", "x", False, "É", "", ["É"]),
    ("a\x0bb", "[^\\S]", "x", True, "axb", "\x0b", ["a", "b"]),
    ("AB\r\n", "(?i)[a-b]+$", "<$0>", True, "<AB>\r\n", "AB", ["", "\r\n"]),
    ("ab\nc\n", "(?m)$", "!", True, "ab!\nc!\n!", "", ["ab", "\nc", "\n", ""]),
    ("ab\n", "$", "!", True, "ab!\n!", "", ["ab", "\n", ""]),
    ("a\r\n", "(a)|($)", "<$1>", True, "<a><>\r\n<>", "a", ["", "", "\r\n", ""]),
    ("S", "\\0123", "x", True, "x", "S", ["", ""]),
    ("x]", "[]]", "x", True, "xx", "]", ["x", ""]),
    ("ab", "a(?i)B", "x", True, "x", "ab", ["", ""]),
    ("ab\n", "b\\Z", "-", True, "a-\n", "b", ["a", "\n"]),
    ("a^b", "[a^]", "-", True, "--b", "a", ["", "", "b"]),
    ("ab\r", "(?<q>b)$", "${q}${q}", True, "abb\r", "b", ["a", "\r"]),
    ("a-b", "[a\\-c]+", "_", True, "_b", "a-", ["", "b"]),
    ("K", "(?i)[j-l]", "x", True, "x", "K", ["", ""]),
    ("aXbx", "(?i:x)b", "_", True, "a_x", "Xb", ["a", "x"]),
    ("a b", "(?i)\\w+", "<$0>", True, "<a> <b>", "a", ["", " ", ""]),
    ("a\u2028", "a$", "_", True, "_\u2028", "a", ["", "\u2028"]),
    ("q", "(?i)[^Q]", "_", False, "q", "", ["q"]),
    ("a\tb\u3000", "\\h", "_", True, "a_b_", "\t", ["a", "b", ""]),
    ("a.b+", "\\Q.b+\\E", "_", True, "a_", ".b+", ["a", ""]),
]


@pytest.mark.parametrize(("text", "pattern", "new", *"abcd"), ANSWERS, ids=[ascii(given[:2]) for given in ANSWERS])
def test_patterns_mean_what_they_mean_in_java(text: str, pattern: str, new: str, a: bool, b: str, c: str, d: list[str]) -> None:
    given, mark = quoted(text), quoted(pattern)
    for subject in (given, "t"):
        assert answers(f"{subject} RLIKE {mark}", text) == [a]
        assert answers(f"regexp_replace({subject}, {mark}, {quoted(new)})", text) == [b]
        assert answers(f"regexp_extract({subject}, {mark}, 0)", text) == [c]
        assert answers(f"split({subject}, {mark})", text) == [d]


def test_only_some_rows_of_a_batch_end_with_the_end_of_a_line() -> None:
    rows = ("ab", "ab\n", None, "b\r\n", "b\n\n", "", "abc")
    assert answers("t RLIKE 'b$'", *rows) == [True, True, None, True, False, False, False]
    assert answers("regexp_replace(t, '(b)$', '<$1>')", *rows) == ["a<b>", "a<b>\n", None, "<b>\r\n", "b\n\n", "", "abc"]
    assert answers("regexp_extract(t, '(a?)b$', 1)", *rows) == ["a", "a", None, "", "", "", ""]
    assert answers("split(t, 'b$', 2)", *rows) == [["a", ""], ["a", "\n"], None, ["", "\r\n"], ["b\n\n"], [""], ["abc"]]
    assert answers("t RLIKE '(?m)^b'", *rows) == [False, False, None, True, True, False, False]
    assert answers("t RLIKE '(?m)^'", *rows) == [True, True, None, True, True, False, True]


def test_a_part_of_a_column() -> None:
    rows = pa.array(["b\n", "ab", None, "", "ab\u2029", "bÅ"])
    column = compile_expression("t RLIKE 'b$'", SCHEMA)
    expected = [True, True, None, False, True, False]
    for start in range(7):
        for stop in range(start, 7):
            assert column(pa.record_batch({"t": rows[start:stop]})).to_pylist() == expected[start:stop]


def test_flags_hold_in_their_group() -> None:
    assert answers("t RLIKE '^(a(?i)b|c)d$'", "aBd", "Cd", "aBD") == [True, True, False]
    assert answers("t RLIKE '(?s)a.b(?-s).'", "a\nbc", "a\nb\n") == [True, False]
    assert answers("t RLIKE '^\\\\p{L}+$'", "äb", "äb\n", "äb\n\n", "1") == [True, True, False, False]


def test_replacements_are_javas() -> None:
    assert answers("regexp_replace(t, '(?<first>a)', '${first}!')", "ann") == ["a!nn"]
    assert answers("regexp_replace(t, '(a)', '$12')", "ann") == ["a2nn"]
    assert answers(r"regexp_replace(t, 'a', '\\$\\\\')", "ann") == ["$\\nn"]
    assert answers("regexp_replace(t, '(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)', '$10$1')", "abcdefghij.") == ["ja."]
    assert answers("regexp_extract(t, '(?<x>a)(b)', 2)", "ab") == ["b"]
    for wrong in ("$", "$x", "${no}", "$2", "\\\\", "${"):
        with pytest.raises(ExpressionError, match="regexp_replace: the replacement"):
            compile_expression(f"regexp_replace(t, '(a)', '{wrong}')", SCHEMA)


REFUSED = [
    ("[a-c&&[^b]]", "'&&'"), ("[a-z&&[aeiou]]", "'&&'"), ("[a[bc]]", "a class inside it"), ("[[:alpha:]]", "[:alpha:]"),
    ("(?U)\\w", "'U'"), ("(?x)a", "'x'"), ("a++", "possessive"), ("a{2}+", "possessive"), ("(?=a)", "look around"),
    ("(?<!a)b", "look around"), ("(?>a)", "look around"), ("(?P<a>b)", "(?<name>...)"), ("(a)\\1", "cannot be repeated"),
    ("\\12", "cannot be repeated"), ("a{,3}", "\\{"), ("\\R", "what it stands for"), ("[a", "not closed"), ("a\\", "backslash"),
    ("(?i)\\p{Lu}", "flag i"), ("(a", "not available"),
    ("a(?i)*", "flags cannot be repeated"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "named"), REFUSED)
def test_what_only_java_can_do_is_refused_by_name(pattern: str, named: str) -> None:
    for call in ("t RLIKE {}", "regexp_replace(t, {}, '')", "regexp_extract(t, {}, 0)", "split(t, {})", "regexp_count(t, {})"):
        with pytest.raises(ExpressionError, match=re.escape(named)):
            compile_expression(call.format(quoted(pattern)), SCHEMA)
