"""Spark's analysed plan as a value: what `LogicalPlan.toJSON` says of it, and what only the JVM knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST: Final = 200
"""Characters of Spark's text that a message quotes."""
RENAMED: Final = {"TimeAdd": "TimestampAddInterval"}
"""Classes that had another name in Spark 4.0, and mean the same."""
CALLED: Final = {
    "Luhncheck": "luhn_check", "JsonToStructs": "from_json", "StructsToJson": "to_json", "CsvToStructs": "from_csv",
    "StructsToCsv": "to_csv", "GetJsonObject": "get_json_object", "DateFormatClass": "date_format", "InSubquery": "in_subquery",
    "FromUTCTimestamp": "from_utc_timestamp", "ToUTCTimestamp": "to_utc_timestamp",
}  # fmt: skip
"""What classes are called in SQL, for messages, where that is not their name in small letters."""


_OPTION = re.compile(r"[(,] ?\(\w+,[^()]*\),")
"""An entry of a map of options, as it is printed among the arguments of a function."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of an expression. kind: Catalyst's class, without its package. fields: its constructor's, as JSON."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Expression, ...] = ()

    @property
    def id(self) -> int:
        """What tells an attribute, or what an alias makes, from others of the same name."""
        return int(self.fields["exprId"]["id"])

    @property
    def name(self) -> str:
        return str(self.fields.get("name", ""))

    def walk(self) -> Iterator[Expression]:
        yield self
        for child in self.children:
            yield from child.walk()

    def __str__(self) -> str:
        """Nearly as Spark would print it, for messages."""
        if self.kind == "AttributeReference":
            return self.name
        if self.kind == "Literal":
            return str(self.fields.get("value"))
        inner = ", ".join(map(str, self.children))
        if self.kind == "Alias":
            return f"{inner} AS {self.name}"
        return f"{self.name or CALLED.get(self.kind, self.kind.lower())}({inner})"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column that a node of the plan puts out. type: as Spark writes it, where it is known."""

    id: int
    name: str
    type: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """A node of the plan. text: one line, as Spark prints it. streaming: a stream is below. output: its columns. delay_us: of a watermark.

    handle: whatever the one who asks Spark for the node's rows knows it by.
    """

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Plan, ...] = ()
    text: str = ""
    streaming: bool = True
    output: tuple[Attribute, ...] = ()
    delay_us: int | None = None
    handle: Any = field(default=None, compare=False, repr=False)

    @property
    def child(self) -> Plan:
        return self.children[0]

    def expression(self, name: str) -> Expression | None:
        """The expression in a field; None if there is none."""
        found = self.fields.get(name)
        return read_expression(found) if found else None

    def expressions(self, name: str) -> list[Expression]:
        """The expressions in a field."""
        return [read_expression(tree) for tree in self.fields[name]]

    def walk(self) -> Iterator[Plan]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def tries(self) -> bool:
        """Whether there is a try_cast in it."""
        return "try_cast(" in self.text

    @property
    def has_options(self) -> bool:
        """Whether a function of JSON or CSV in it has options, or may have them: the JSON of the node does not say so, its text does."""
        reads = any(f"{name}(" in self.text for name in ("from_json", "to_json", "from_csv", "to_csv"))
        return reads and ("more fields" in self.text or _OPTION.search(self.text) is not None)

    @property
    def shown(self) -> str:
        """The text for a message."""
        text = self.text or self.kind
        return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def read_expression(nodes: Sequence[Mapping[str, Any]]) -> Expression:
    """The tree that `TreeNode.toJSON` has written: nodes in the order in which they are met from the root, children from left to right."""
    left = iter(nodes)

    def read() -> Expression:
        node = next(left)
        children = tuple(read() for _ in range(node["num-children"]))
        return Expression(kind_of(node), node, children)

    return read()


def kind_of(node: Mapping[str, Any]) -> str:
    """Its class in Spark, by the name that it has now."""
    kind = str(node["class"]).rsplit(".", 1)[-1]
    return RENAMED.get(kind, kind)


def attributes(value: Any) -> Iterator[int]:
    """Ids of all attributes that are named anywhere in fields."""
    if isinstance(value, Mapping):
        if str(value.get("class", "")).endswith(".AttributeReference"):
            yield int(value["exprId"]["id"])
        for part in value.values():
            yield from attributes(part)
    elif isinstance(value, list):
        for part in value:
            yield from attributes(part)


def conjuncts(tree: Expression) -> Iterator[Expression]:
    """What AND puts together."""
    if tree.kind == "And":
        for child in tree.children:
            yield from conjuncts(child)
    else:
        yield tree


def type_of(tree: Expression) -> Any:
    """The type of an expression where it is plain to see, else None."""
    if tree.kind == "SubtractTimestamps":
        return "interval day to second"
    if tree.kind == "TimestampAddInterval":
        return "timestamp_ntz" if type_of(tree.children[0]) == "timestamp_ntz" else "timestamp"
    if tree.kind == "GetStructField":
        owner, ordinal = type_of(tree.children[0]), int(tree.fields["ordinal"])
        return owner["fields"][ordinal]["type"] if isinstance(owner, Mapping) else None
    if tree.kind == "UpdateFields" and isinstance(type_of(tree.children[0]), Mapping):
        return {"type": "struct", "fields": updated_types(tree)}
    if tree.kind == "UnaryMinus" or "replacement" in tree.fields:
        return type_of(tree.children[0])
    return tree.fields.get("dataType")


def updated_types(tree: Expression) -> list[dict[str, Any]]:
    """Names and types of the fields that `withField` and `dropFields` leave, of new ones also what they are `made` of. A field that is set
    takes the place of all of its name, whatever the case of its letters."""
    given, *changes = tree.children
    fields = [dict(field) for field in type_of(given)["fields"]]
    for change in changes:
        same = [field for field in fields if str(field["name"]).lower() == change.name.lower()]
        if change.kind == "DropField":
            fields = [field for field in fields if field not in same]
            continue
        new = {"name": change.name, "type": type_of(change.children[0]), "made": change.children[0]}
        fields = [new if field in same else field for field in fields] if same else [*fields, new]
    return fields
