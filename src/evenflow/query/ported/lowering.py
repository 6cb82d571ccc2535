"""An analysed plan to boxes of a dataflow, node by node from the sources up.

What is below the first stateful node stays in Spark, which does it in its JVM and pushes the rows in: files, Kafka, parsing, Python
functions, joins with tables. A projection right above `withWatermark` is moved below it, since that changes no time. Everything above is
written as SQL again, one SELECT a node, and lowered as `ef.sql` is; so the same judge decides what can run, and running results are known
as such.

Columns are told apart by Spark's ids: each gets a name that no other column of the whole plan has. A column that is a window is two columns
here, its start and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from evenflow.errors import NotPortable, QueryError
from evenflow.query.ported.chain import ALIASES, Chain, chain_of, grouped, needed, window_id
from evenflow.query.ported.ending import Ending, about, ending_of, unaliased
from evenflow.query.ported.expressions import SqlWriter
from evenflow.query.ported.names import Names
from evenflow.query.ported.nodes import HOW, MIRRORED, REMEDIES, STATEFUL, check_collations, check_policy, check_told
from evenflow.query.ported.origin import Origin
from evenflow.query.ported.stateful import below_keys, with_state
from evenflow.query.ported.tree import Attribute, Expression, Plan, conjuncts
from evenflow.query.ported.windows import Window, end_of_window, passes, renaming, sets_of, starts_over, window_of, without_bounds
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.script.grammar import Script, parse_script
from evenflow.query.script.lowering import OutputMode
from evenflow.query.script.relation import Relation, Windows, free_name
from evenflow.query.script.select import Lowering
from evenflow.stream.change import is_changelog
from evenflow.stream.schema import quoted

if TYPE_CHECKING:
    from evenflow.query.builder import Dataflow, Stream

_EVER: Final = "36500 days"
"""How late rows may come where all windows are kept, and nobody has said it."""


@dataclass(frozen=True, slots=True)
class Ported:
    """What a node has become. window: what rows are to be grouped by next, which is no column here."""

    relation: Relation
    window: Window | None = None


@dataclass
class PlanLowering:
    """Draws a plan in `flow`. mode: of its output. zone: of the session. used: ids that something above names, or that come out.

    grouped: ids by which rows are grouped. renamed: ids of windows that have another one by now.

    every: of complete mode, how often. policy: how the session puts several watermarks together, "min" or "max". refresh: how often tables
    are read again, None: never.
    """

    flow: Dataflow
    origin: Origin
    mode: OutputMode = "append"
    zone: str = "UTC"
    every: str | timedelta = "1 second"
    policy: str = "min"
    refresh: str | timedelta | None = None
    names: Names = field(default_factory=Names)
    used: set[int] = field(default_factory=set)
    grouped: set[int] = field(default_factory=set)
    renamed: set[int] = field(default_factory=set)

    def lower(self, plan: Plan) -> Stream:
        """The stream of the plan's rows. Raises NotPortable."""
        check_policy(plan, self.policy)
        ending = Ending()
        if self.mode == "complete":
            plan, ending = ending_of(plan)
        self.grouped = grouped(plan)
        self.used = needed(plan, self._stays)
        ported = Ported(self._settled(self.node(plan)))
        with about(plan):
            self._check_mode(ported.relation)
            shown = self._shown(plan, ported)
            if self.mode == "complete" and not is_changelog(shown.stream.schema):  # Spark refuses it, too, when such a query is started.
                raise QueryError("complete mode puts out the groups of an aggregate again and again, and here is none; use append mode")
            by = [f"{self._end_column(plan, tree)} {'desc' if desc else 'asc'}" for tree, desc in ending.by]
            return self._lowering("SELECT 1").finished(shown, exp.Select(), by, ending.limit)

    def _end_column(self, plan: Plan, tree: Expression) -> str:
        """What a column by which a whole table is sorted is called in it."""
        name = next((column.name for column in plan.output if tree.kind == "AttributeReference" and column.id == tree.id), None)
        if name is None:
            raise QueryError(f"a table is sorted by columns of its own, not by {tree}; select it before")
        return name

    def _stays(self, plan: Plan) -> bool:
        """Whether Spark goes on doing all of it."""
        for node in plan.walk():
            if node.streaming and self.grouped and window_id(node) in self.grouped:
                return False
            if node.streaming and (node.kind in STATEFUL or (node.kind == "Join" and all(side.streaming for side in node.children))):
                return False
        return True

    def _check_mode(self, relation: Relation) -> None:
        if self.mode == "append" and relation.running:
            raise QueryError(
                "a group without a window is never complete, so there is nothing to append: group by window(...) of a watermarked time, or "
                "give output_mode='update'"
            )

    def _shown(self, plan: Plan, ported: Ported) -> Relation:
        """The columns under the names that they have in Spark."""
        items: list[tuple[str, str]] = []
        for attribute in plan.output:
            items.append((attribute.name, self._value(attribute)))
        seen = [name.lower() for name, _ in items]
        twice = next((name for name, _ in items if seen.count(name.lower()) > 1), None)
        if twice is not None:
            raise QueryError(f"two columns are called {twice!r}; rename one of them in Spark, with .withColumnRenamed or .alias")
        return self._select([f"{column} AS {quoted(name)}" for name, column in items], "FROM given", given=ported.relation)

    # ------------------------------------------------ nodes

    def node(self, plan: Plan) -> Ported:
        """What a node of the plan becomes. Raises NotPortable with the node's text."""
        with about(plan):
            if self._stays(plan):
                return Ported(self._from_spark(plan))
            lowered = _NODES.get(plan.kind)
            if plan.kind in ALIASES:
                return self.node(plan.child)
            chain = chain_of(plan, self._stays)
            if chain is not None and chain.can_move and not self._is_written(chain):
                return Ported(self._moved(chain))
            if lowered is None:
                raise QueryError(
                    REMEDIES.get(plan.kind, "Evenflow has nothing like it; leave it out, or do it in Spark before withWatermark")
                )
            check_told(plan)
            return lowered(self, plan)

    def _from_spark(self, plan: Plan, chain: Chain | None = None) -> Relation:
        """The rows that Spark computes, with what the chain above them computes."""
        columns = list((chain.top if chain is not None and chain.nodes else plan).output)
        time = None if chain is None else chain.time()
        lacking = None if time is None or time in columns else time
        if lacking is not None:
            columns.append(lacking)
        names = [self.names.of(column) for column in columns]
        wanted = [column for column in columns if column.id in self.used or column == time] or columns[:1]
        check_collations(wanted)
        kept = [self.names.of(column) for column in wanted]
        holding = [free_name(f"holds_{number}", names) for number in range(chain.conditions if chain is not None else 0)]
        above = chain.nodes if chain is not None else ()
        source = self.origin.stream(plan, names + holding, kept + holding, above, None if lacking is None else lacking.id)
        stream = self.flow.source(source, name=self.flow.free("spark"))
        if chain is not None and time is not None:
            stream = stream.with_watermark(self.names.of(time), f"{chain.watermark.delay_us} us")
        if not holding:
            return Relation.of(stream)
        rest = f"FROM given WHERE {' AND '.join(map(quoted, holding))}"
        return self._select([*map(quoted, kept)], rest, given=Relation.of(stream))

    def _moved(self, chain: Chain) -> Relation:
        """What Spark goes on computing, though it stands above a watermark."""
        return self._from_spark(unaliased(chain.watermark.child), chain)

    def _is_written(self, chain: Chain) -> bool:
        """Whether its expressions are Evenflow's, too. Projections alone are Spark's, which has the rows at hand."""
        if all(node.kind == "Project" for node in chain.nodes):
            return False
        writer = SqlWriter(lambda tree: quoted(tree.name), self._field(None), self.zone)
        try:
            for node in chain.nodes:
                if node.kind == "Generate" or node.tries or node.has_options:
                    return False
                trees = node.expressions("projectList") if node.kind == "Project" else [node.expression("condition")]
                for tree in trees:
                    if tree is not None and (node.kind == "Filter" or tree.id in self.used):
                        writer.sql(tree)
        except QueryError:
            return False
        return True

    def _watermark(self, plan: Plan) -> Ported:
        below = unaliased(plan.child)
        if self._stays(below):
            return Ported(self._from_spark(below, Chain((), plan)))
        stream = self.node(below).relation.stream
        stream = stream.with_watermark(self.names.of(Chain((), plan).time()), f"{plan.delay_us} us")
        return Ported(Relation.of(stream))

    def _project(self, plan: Plan) -> Ported:
        found = window_of(plan)
        if found is not None:
            return self._windowed(plan, *found)
        if plan.kind == "Expand":
            return self._expanded(plan)
        given = self.node(plan.child)
        columns = [column for column in plan.expressions("projectList") if column.id in self.used] or plan.expressions("projectList")[:1]
        window = given.window
        if window is not None and (renamed := renaming(window, columns)) is not None:
            self.renamed.add(window.id)
            columns = [column for column in columns if column.id not in (window.id, renamed.id)]
            window = renamed
        elif window is not None and not passes(window, columns):
            given, window = Ported(self._settled(given)), None
        plain = [column for column in columns if window is None or column.id != window.id]
        items = [item for column in plain for item in self._item(column, None)]
        return Ported(self._select(items, "FROM given", given=given.relation), window)

    def _expanded(self, plan: Plan) -> Ported:
        """ROLLUP, CUBE and GROUPING SETS: a row for each set of keys, as a union of projections."""
        given = self.node(plan.child)
        window, passed = given.window, None
        outputs = plan.expressions("output")
        texts = []
        for made_all in sets_of(plan, window, self.mode):
            items = list[str]()
            for out, made in zip(outputs, made_all, strict=True):
                if made.kind == "AttributeReference" and made.id in self.renamed:
                    continue
                if window is not None and made.kind == "AttributeReference" and made.id == window.id:
                    passed = replace(window, id=out.id) if out.id in self.used and out.id != window.id else passed
                elif out.id in self.used:
                    items += self._item(replace(out, kind="Alias", children=(made,)), None)
            texts.append(f"SELECT {', '.join(items)} FROM given")
        return Ported(self._query(" UNION ALL ".join(texts), given=given.relation), passed or window)

    def _windowed(self, plan: Plan, window: Window, others: Sequence[Expression]) -> Ported:
        """A column that is a window is no column before rows are grouped by it. The others pass."""
        given = self.node(plan.child)
        if given.window is not None:
            raise QueryError("rows are put into two windows; group by one of them before the other")
        if self.mode == "update" and not window.slide_us:
            raise NotPortable(f"{window} has no update mode, in Spark neither: give output_mode='append' or 'complete'", str(window))
        if any(column.kind == "Alias" for column in others):
            items = [item for column in others for item in self._item(column, None)]
            given = Ported(self._select(items, "FROM given", given=given.relation))
        if self.mode == "complete" and given.relation.stream.event_time is None and window.time.kind == "AttributeReference":
            stream = given.relation.stream.with_watermark(self.names.of(Attribute(window.time.id, window.time.name)), _EVER)
            given = Ported(Relation.of(stream))
        return Ported(given.relation, window)

    def _filter(self, plan: Plan) -> Ported:
        given = self.node(plan.child)
        condition = plan.expression("condition")
        assert condition is not None
        if given.window is not None and given.window.gap is not None:
            condition = without_bounds(given.window, condition)
            if condition is None:
                return given
        if given.window is not None and any(node.id == given.window.id for node in condition.walk() if node.kind == "AttributeReference"):
            given = Ported(self._settled(given))
        rest = f"FROM given WHERE {self._writer(None).condition(condition)}"
        return replace(given, relation=self._select(["*"], rest, given=given.relation))

    def _aggregate(self, plan: Plan) -> Ported:
        given = self.node(plan.child)
        writer = self._writer(given.window)
        groups = []
        for key in plan.expressions("groupingExpressions"):
            found = key.children[0] if key.kind == "Alias" else key
            if given.window is not None and found.kind == "AttributeReference" and found.id == given.window.id:
                groups.append(self._call(given.window))
            elif found.kind == "AttributeReference" and found.id in self.names.bounds:
                groups += map(quoted, self.names.bounds[found.id])
            else:
                groups.append(writer.sql(found))
        items = [item for column in plan.expressions("aggregateExpressions") for item in self._item(column, given.window)]
        by = f" GROUP BY {', '.join(groups)}" if groups else ""
        return Ported(self._select(items, f"FROM given{by}", given=given.relation))

    def _call(self, window: Window) -> str:
        if window.gap is not None:
            writer = self._writer(None)
            return f"{window.word}({writer.sql(window.time)}, {writer.sql(window.gap)})"
        spans = [window.size_us]
        if window.slide_us and (window.offset_us or window.slide_us != window.size_us):
            spans += [window.slide_us, window.offset_us % window.slide_us]
        lengths = "".join(f", '{span} us'" for span in spans)
        return f"{window.word}({self._writer(None).sql(window.time)}{lengths})"

    def _join(self, plan: Plan) -> Ported:
        how = HOW.get(str(plan.fields["joinType"].get("object", "")).rsplit(".", 1)[-1].removesuffix("$"))
        condition = plan.expression("condition")
        if how is None or condition is None:
            raise QueryError("a join needs columns that are equal on both sides, and is inner, left, right, full, semi or anti")
        left, right = plan.children
        if not left.streaming or not right.streaming:
            return Ported(self._join_table(left, right, how, condition))
        sides = [self._settled(self.node(side)) for side in plan.children]
        shown = sides[:1] if how in ("semi", "anti") else sides
        columns = [f"{side}.{quoted(column)}" for side, relation in zip("lr", shown, strict=False) for column in relation.stream.columns]
        word = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}.get(how, how.upper())
        text = f"FROM l {word} JOIN r ON {self._condition(condition, sides)}"
        return Ported(self._select(columns, text, l=sides[0], r=sides[1]))

    def _condition(self, condition: Expression, sides: Sequence[Relation]) -> str:
        """The condition of a join. Equal windows have equal bounds, and times in them are not further apart than they are long."""
        parts = []
        for part in conjuncts(condition):
            pair = [self.names.bounds.get(side.id) for side in part.children if side.kind == "AttributeReference"]
            if part.kind != "EqualTo" or len(pair) != 2 or None in pair:
                parts.append(self._writer(None).condition(part))
                continue
            parts += [f"{quoted(one)} = {quoted(other)}" for one, other in zip(*filter(None, pair), strict=True)]
            times = [side.stream.event_time for side in sides]
            size_us = self.names.size_of([side.id for side in part.children], times)
            if size_us is not None:
                left, right, span = quoted(str(times[0])), quoted(str(times[1])), f"INTERVAL '{size_us}' MICROSECOND"
                parts.append(f"{right} BETWEEN {left} - {span} AND {left} + {span}")
        return " AND ".join(parts)

    def _join_table(self, left: Plan, right: Plan, how: str, condition: Expression) -> Relation:
        """With a batch DataFrame, as it is now, or as it is whenever it is read again."""
        if not left.streaming:
            if how not in MIRRORED:
                raise QueryError(f"a {how} join of a table with a stream would wait for its end; put the stream on the left")
            left, right, how = right, left, MIRRORED[how]
        names = [self.names.of(column) for column in right.output]
        wanted = [column for column in right.output if column.id in self.used]
        check_collations(wanted)
        kept = [self.names.of(column) for column in wanted]
        relation = self._settled(self.node(left))
        self._check_final(relation, "a join")

        def sided(tree: Expression) -> str:
            columns = self._columns(Attribute(tree.id, tree.name))
            if len(columns) > 1:
                raise QueryError(f"a table is joined by columns of its own; use {tree.name}.start and {tree.name}.end")
            name = columns[0]
            return f"{'r' if name in names else 'l'}.{quoted(name)}"

        text = SqlWriter(sided, self._field(None), self.zone).condition(condition)
        table = self.origin.table(right, names, kept)
        if self.refresh is not None:
            number = len(refreshed_tables(self.flow.network)) + 1
            table = self.flow.table(table, f"table_{number}" if number > 1 else "table", refresh=self.refresh)
        stream = relation.stream.join(table, condition=text, how=how)
        return replace(Relation.of(stream), windows=relation.windows)

    def _union(self, plan: Plan) -> Ported:
        relations = [self._settled(self.node(child)) for child in plan.children]
        columns = [column for attribute in plan.children[0].output for column in self._columns(attribute)]
        texts = []
        for number, child in enumerate(plan.children):
            own = [column for attribute in child.output for column in self._columns(attribute)]
            items = [f"{quoted(mine)} AS {quoted(name)}" for mine, name in zip(own, columns, strict=True)]
            texts.append(f"SELECT {', '.join(items)} FROM u{number}")
        relation = self._query(" UNION ALL ".join(texts), **{f"u{number}": relation for number, relation in enumerate(relations)})
        for attribute, first in zip(plan.output, plan.children[0].output, strict=True):
            if first.id in self.names.columns:
                self.names.columns[attribute.id] = self.names.columns[first.id]
        return Ported(relation)

    def _deduplicate(self, plan: Plan) -> Ported:
        relation = self._settled(self.node(plan.child))
        self._check_final(relation, "dropDuplicates")
        keys = plan.expressions("keys") if "keys" in plan.fields else []
        columns = [column for key in keys for column in self._columns(Attribute(key.id, key.name))] or [
            column for attribute in plan.output for column in self._columns(attribute)
        ]
        within = plan.kind == "DeduplicateWithinWatermark"
        return Ported(relation.where(relation.stream.drop_duplicates(columns, within_watermark=within)))

    def _with_state(self, plan: Plan) -> Ported:
        relation = self._settled(self.node(below_keys(plan)))
        self._check_final(relation, "applyInPandasWithState")
        keys = [column for key in plan.expressions("groupingAttributes") for column in self._columns(Attribute(key.id, key.name))]
        return Ported(with_state(plan, relation, keys, self.names, self.origin))

    # ------------------------------------------------ columns

    def _item(self, column: Expression, window: Window | None) -> list[str]:
        """What a column of a projection or of an aggregate is in SQL; a window is two columns."""
        inner = column.children[0] if column.kind == "Alias" else column
        if inner.kind == "AttributeReference" and window is not None and inner.id == window.id:
            sources = [f"{window.word}.start", f"{window.word}.end"]
        elif inner.kind == "AttributeReference" and inner.id in self.names.bounds:
            sources = [quoted(bound) for bound in self.names.bounds[inner.id]]
        else:
            own = self.names.of(Attribute(column.id, column.name))
            if column is not inner and inner.kind == "AttributeReference" and inner.id in self.names.columns:
                self.names.rename(self.names.columns[inner.id], own)
            name = quoted(own)
            found = end_of_window(inner)
            text = self._writer(window).sql(inner) if found is None else f"window_time({self._field(window)(found, 1)})"
            return [f"{text} AS {name}"]
        return [
            f"{source} AS {quoted(name)}"
            for source, name in zip(sources, self.names.window(Attribute(column.id, column.name)), strict=True)
        ]

    def _columns(self, attribute: Attribute) -> tuple[str, ...]:
        """What an attribute is called here."""
        if attribute.id in self.names.bounds:
            return self.names.bounds[attribute.id]
        if attribute.id not in self.names.columns:
            raise QueryError(f"the column {attribute.name!r} is a window or a structure by which rows were not grouped; group by it")
        return (self.names.columns[attribute.id],)

    def _value(self, attribute: Attribute) -> str:
        """The SQL of an attribute. A window is carried as its bounds, of which its structure is made where it is wanted."""
        columns = [quoted(column) for column in self._columns(attribute)]
        return columns[0] if len(columns) == 1 else f"named_struct('start', {columns[0]}, 'end', {columns[1]})"

    def _settled(self, given: Ported) -> Relation:
        """The rows with the bounds of their window as columns, where nothing has grouped by it yet."""
        window, relation = given.window, given.relation
        if window is None:
            return relation
        if not window.slide_us:
            raise QueryError(f"{window} without a groupBy is no session; group by it")
        name = "window"
        start, end = self.names.window(Attribute(window.id, name))
        time = self._writer(None).sql(window.time)
        if window.slide_us != window.size_us:
            return self._of_several(relation, window, time, start, end)
        over = f"_window_start({time}, {window.size_us}L, {window.offset_us % window.slide_us}L)"
        made = self._select(
            ["*", f"{over} AS {quoted(start)}", f"{over} + INTERVAL '{window.size_us}' MICROSECOND AS {quoted(end)}"],
            "FROM given",
            given=relation,
        )
        if relation.stream.event_time is None or quoted(relation.stream.event_time) != time:
            return made
        self.names.sizes[window.id] = (window.size_us, relation.stream.event_time)
        return replace(made, windows=Windows(start, end, window.size_us, window.slide_us, window.offset_us % window.slide_us))

    def _of_several(self, relation: Relation, window: Window, time: str, start: str, end: str) -> Relation:
        """A row for each window that slides over it."""
        made = self._select(["*"], f"FROM given LATERAL VIEW explode({starts_over(window, time)}) w AS {quoted(start)}", given=relation)
        ends = f"{quoted(start)} + INTERVAL '{window.size_us}' MICROSECOND AS {quoted(end)}"
        if relation.stream.event_time is not None and quoted(relation.stream.event_time) == time:
            self.names.sizes[window.id] = (window.size_us, relation.stream.event_time)
        return self._select(["*", ends], "FROM given", given=made)

    def _field(self, window: Window | None) -> Callable[[Expression, int], str | None]:
        def field_of(tree: Expression, ordinal: int) -> str | None:
            owner = tree.children[0]
            if owner.kind == "AttributeReference":
                if window is not None and owner.id == window.id:
                    return f"{window.word}.{('start', 'end')[ordinal]}"
                if owner.id in self.names.bounds:
                    return quoted(self.names.bounds[owner.id][ordinal])
            return None

        return field_of

    def _writer(self, window: Window | None) -> SqlWriter:
        windowed = window is not None and window.slide_us > 0
        return SqlWriter(lambda tree: self._value(Attribute(tree.id, tree.name)), self._field(window), self.zone, windowed=windowed)

    # ------------------------------------------------ SQL

    def _select(self, items: Sequence[str], rest: str, **tables: Relation) -> Relation:
        return self._query(f"SELECT {', '.join(items)} {rest}", **tables)

    def _query(self, text: str, **tables: Relation) -> Relation:
        lowering = self._lowering(text)
        return lowering.query(lowering.script.statements[0], tables)

    def _lowering(self, text: str) -> Lowering:
        script: Script = parse_script(text)
        return Lowering(self.flow, script, self.mode, self.every)

    def _check_final(self, relation: Relation, what: str) -> None:
        if relation.running:
            raise QueryError(
                f"{what} would count every state of a running aggregate as a row of its own; give the groupBy before it a window(...)"
            )


_NODES: Final[dict[str, Callable[[PlanLowering, Plan], Ported]]] = {
    "EventTimeWatermark": PlanLowering._watermark,
    "Project": PlanLowering._project,
    "Expand": PlanLowering._project,
    "Filter": PlanLowering._filter,
    "Aggregate": PlanLowering._aggregate,
    "Join": PlanLowering._join,
    "Union": PlanLowering._union,
    "Deduplicate": PlanLowering._deduplicate,
    "DeduplicateWithinWatermark": PlanLowering._deduplicate,
    "Distinct": PlanLowering._deduplicate,
    "FlatMapGroupsInPandasWithState": PlanLowering._with_state,
}

__all__ = ["OutputMode", "PlanLowering"]
