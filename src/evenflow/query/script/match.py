"""FROM stream MATCH_RECOGNIZE (...) to a pattern box."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from evenflow.query.matching import ALL_ROWS, MATCH_END, MATCH_START, ONE_ROW, UNMATCHED_TOO, PerMatch, skip_to, understood
from evenflow.query.pattern import compile_pattern
from evenflow.query.script.best import columns_of, ordered
from evenflow.query.script.lowering import Lower
from evenflow.query.script.placed import in_time_order
from evenflow.query.script.relation import Relation, Visible, computed, is_column
from evenflow.query.script.spans import span_us
from evenflow.query.sql.parser import to_sql

PER_MATCH: Final[dict[str, PerMatch]] = {
    "ONE ROW PER MATCH": ONE_ROW,
    "ALL ROWS PER MATCH": ALL_ROWS,
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS": UNMATCHED_TOO,
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES": ALL_ROWS,
}
"""A pattern matches no match without a row, so there is none to be shown."""
_SKIPS: Final = {"AFTER MATCH SKIP PAST LAST ROW": "past last row", "AFTER MATCH SKIP TO NEXT ROW": "to next row"}
_TO_VARIABLE: Final = re.compile(r"AFTER MATCH SKIP TO (?:(FIRST|LAST) )?(\w+)")


def recognized(lower: Lower, relation: Relation, query: exp.Select, tree: exp.MatchRecognize) -> Relation:
    """The matches of a pattern in the rows of a relation: the columns of PARTITION BY, or of ALL ROWS those of the relation, and
    the measures. query: whose FROM it is in."""
    script = lower.script
    lower.check_final(relation, tree, "MATCH_RECOGNIZE")
    if query.args.get("joins"):
        script.fail(tree, "MATCH_RECOGNIZE behind a join; write the join in a query inside this one: FROM (SELECT ...) MATCH_RECOGNIZE")
    within_us, rows = _clauses(lower, tree)
    ties = in_time_order(lower, relation, ordered(lower, relation, tree), tree, "MATCH_RECOGNIZE")
    given = [lower.rewritten(relation, key) for key in tree.args.get("partition_by") or ()]
    made, keys = columns_of(given, "_key", relation)
    relation = computed(relation, made)
    with script.at(tree.args["pattern"]):
        pattern = tree.args["pattern"].name
        variables = compile_pattern(pattern).variables
    skip = _skip(lower, tree, variables)
    reader = _Reader(lower, relation, variables, pattern, rows)
    define = reader.define(tree.args.get("define") or ())
    measures, visible = reader.measures(tree.args.get("measures") or ())
    if rows == ONE_ROW and not visible and not keys:
        script.fail(tree, "MATCH_RECOGNIZE with neither PARTITION BY nor MEASURES puts out no column; name one of them")
    named = [Visible(next((v.name for v in relation.columns if v.column == key), key), "", key) for key in keys]
    if rows != ONE_ROW:
        named = [Visible(v.name, "", v.column) for v in relation.columns if not v.qualified]
        twice = next((v.name for v in visible if v.name.lower() in {other.name.lower() for other in named}), None)
        if twice is not None:
            script.fail(tree, f"the measure {twice!r} has the name of a column of the rows, which come out as well; give it another one")
    with script.at(tree):
        stream = relation.stream.group_by(*keys).pattern(
            pattern, define=define, measures=measures or ({"_rows": "count(*)"} if rows == ONE_ROW else {}), within=f"{within_us} us",
            skip=skip, rows=rows, tie_break=ties,
        )  # fmt: skip
    shown = Relation(stream, (*named, *visible))
    alias = tree.args.get("alias")
    return shown if alias is None else lower.renamed(shown, alias).called(alias.name)


def _clauses(lower: Lower, tree: exp.MatchRecognize) -> tuple[int, PerMatch]:
    """How long a match may take, in microseconds, and what comes out of it."""
    script = lower.script
    rows, within = (tree.args.get(clause) for clause in ("rows", "within"))
    if tree.args.get("pattern") is None:
        script.fail(tree, "MATCH_RECOGNIZE has no PATTERN; write PATTERN (A B+) WITHIN INTERVAL '10' MINUTES")
    if rows is not None and rows.name not in PER_MATCH:
        script.fail(rows, f"{rows.name} is not available; write {' or '.join(list(PER_MATCH)[:3])}")
    if within is None:
        script.fail(
            tree.args["pattern"],
            "a pattern on a stream needs a bound in time, or rows would be kept for ever; write WITHIN INTERVAL '10' MINUTES behind it",
        )
    return span_us(lower, within), ONE_ROW if rows is None else PER_MATCH[rows.name]


def _skip(lower: Lower, tree: exp.MatchRecognize, variables: Sequence[str]) -> str:
    """Where the next match may begin. TO a variable is to its last row."""
    after = tree.args.get("after")
    if after is None or after.name in _SKIPS:
        return "past last row" if after is None else _SKIPS[after.name]
    found = _TO_VARIABLE.fullmatch(after.name)
    if found is None:
        first = variables[-1]
        ways = (*_SKIPS, f"AFTER MATCH SKIP TO FIRST {first}", f"AFTER MATCH SKIP TO LAST {first}")
        lower.script.fail(after, f"{after.name} is not available; write one of {', '.join(ways)}")
    skip = f"to {(found[1] or 'LAST').lower()} {found[2]}"
    with lower.script.at(after):
        skip_to(skip, variables)
    return skip


class _Reader:
    """DEFINE and MEASURES over the stream's own columns, checked one by one, so that an error has its place."""

    def __init__(self, lower: Lower, relation: Relation, variables: Sequence[str], pattern: str, rows: str) -> None:
        self._lower, self._relation, self._variables, self._pattern, self._rows = lower, relation, variables, pattern, rows

    def define(self, parts: Sequence[exp.Expr]) -> dict[str, str]:
        """Conditions by variable."""
        made: dict[str, str] = {}
        for part in parts:
            if not isinstance(part, exp.Alias):
                self._lower.script.fail(part, f"DEFINE takes conditions of variables, such as B AS price > 10, not {to_sql(part)!r}")
            variable = part.alias.upper()
            if variable in made:
                self._lower.script.fail(part, f"{part.alias} is defined twice; write its condition once")
            text = self._own(part.this)
            with self._lower.script.at(part):
                understood(self._relation.stream.schema, self._pattern, [(variable, text)], [("rows", "count(*)")])
            made[variable] = text
        return made

    def measures(self, parts: Sequence[exp.Expr]) -> tuple[dict[str, str], list[Visible]]:
        """(expressions by name, the columns that SQL sees). FIRST and LAST of the event time are there already."""
        made: dict[str, str] = {}
        visible: list[Visible] = []
        bounds = {f"{edge}(`{self._relation.stream.event_time}`)": name for edge, name in (("first", MATCH_START), ("last", MATCH_END))}
        for item in parts:
            name = item.alias if isinstance(item, exp.Alias) else item.name if is_column(item) else ""
            if not name:
                self._lower.script.fail(item, f"the measure {to_sql(item)!r} has no name; write {to_sql(item)} AS name")
            if name.lower() in (v.name.lower() for v in visible):
                self._lower.script.fail(item, f"two measures are called {name!r}; rename one of them")
            text, when = self._own(item.unalias()), str(item.meta.get("when", ""))
            bound = bounds.get(text[:5].lower() + text[5:]) if self._rows == ONE_ROW or when == "FINAL" else None
            text = f"{when} {text}".lstrip() if self._rows != ONE_ROW else text
            with self._lower.script.at(item):
                understood(self._relation.stream.schema, self._pattern, [], [(name, text)], self._rows)
            visible.append(Visible(name, "", bound or name))
            if bound is None:
                made[name] = text
        return made, visible

    def _own(self, tree: exp.Expr) -> str:
        """The expression over the stream's own columns, which keep the variable that they are of."""

        def own(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                return node
            of = node.table if node.table.upper() in self._variables else ""
            found = self._relation.find(exp.column(node.name) if of else node)
            return exp.column(found.column, table=of.upper() or None, quoted=True)

        with self._lower.script.at(tree):
            return to_sql(tree.copy().transform(own))
