"""Messages whose writers mean harm: numbers, schemas and lengths that would take a library's time, memory or stack without end.

Each in a process of its own, whose time and memory are limited: what goes wrong here holds the interpreter, or ends it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

EACH = """
import json, os, resource, sys

def limited(case):
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_CPU, (4, 5))
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 30), resource.RLIM_INFINITY))
    print(json.dumps([case, one(case)]), flush=True)

for case in json.loads(sys.stdin.read()):
    child = os.fork()
    if not child:
        try:
            limited(case)
        except BaseException as error:
            print(json.dumps([case, repr(error)[:500]]), flush=True)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(json.dumps([case, f"ended by signal {status & 127}"]))
        break
"""


def alone(setup: str, cases: Sequence[Any]) -> list[tuple[Any, Any]]:
    """(case, what `one(case)` is) of each, in processes that the setup is run before, with four seconds and 4 GB; the first that
    does not come back is the last.
    """
    done = subprocess.run(
        [sys.executable, "-c", setup + EACH], input=json.dumps(cases), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [(case, found) for case, found in map(json.loads, done.stdout.splitlines())]


def not_bad(found: Sequence[tuple[Any, str]]) -> list[tuple[Any, str]]:
    assert found
    return [each for each in found if each[1] != "bad"]


# ---------------------------------------------------------------- numbers

NUMBERS = ["1e999999999", "1e300000", "1e-999999999", "-0e-999999999", "1e999999999999999999", "0." + "0" * 99 + "1"]
TYPES = ["bigint", "int", "tinyint", "date", "timestamp", "timestamp_ntz", "decimal(9, 2)", "decimal(38, 38)"]


def test_no_number_of_an_envelope_is_written_out() -> None:
    """Goal: a few bytes take no hours, and end no site. Method: numbers with exponents in columns of every kind, nested ones too."""
    nested = [("array<%s>", "[1, %s]"), ("array<struct<x: %s>>", '[{"x": %s}]'), ("map<string, %s>", '{"x": %s}')]
    cases = [[type_, "", text] for type_ in TYPES for number in NUMBERS for text in (number, f'"{number}"')]
    cases += [[outer % type_, "", inner % number] for outer, inner in nested for type_ in TYPES for number in NUMBERS]
    units = (("timestamp", "io.debezium.time.MicroTimestamp"), ("date", "io.debezium.time.Date"))
    cases += [[type_, unit, number] for type_, unit in units for number in NUMBERS]
    setup = """
from evenflow.sources.debezium import DebeziumDecoder, Misfit
from evenflow.stream.schema import parse_ddl
import pandas, pyarrow
def one(case):
    type_, unit, value = case
    schema = '{"fields": [{"field": "after", "fields": [{"field": "v", "name": "%s"}]}]}' % unit
    payload = '{"op": "u", "before": {"v": %s}, "after": {"v": %s}}' % ("1" if unit else "null", value)
    try:
        return str(DebeziumDecoder(parse_ddl("v " + type_)).rows(('{"schema": %s, "payload": %s}' % (schema, payload)).encode()))
    except Misfit as error:
        return "bad" if "column 'v' is not" in str(error) else str(error)
"""
    assert not_bad(alone(setup, cases)) == []


def test_no_number_of_a_line_with_maps_is_written_out() -> None:
    """The same of lines that are read here and not by Arrow."""
    setup = """
from evenflow.sources.messages import UNFIT, parse_lines
from evenflow.stream.schema import parse_ddl
import pandas, pyarrow
def one(case):
    type_, value = case
    try:
        return str(parse_lines(b'{"m": {"k": %s}}\\n' % value.encode(), parse_ddl(f"m map<string, {type_}>"), "json"))
    except UNFIT:
        return "bad"
"""
    cases = [[type_, text] for type_ in TYPES for number in NUMBERS for text in (number, f'"{number}"')]
    assert not_bad(alone(setup, cases)) == []


def test_no_decimal_of_a_line_is_looked_up_behind_a_table() -> None:
    """Goal: lines that Arrow reads end no site. Method: decimals with exponents, hidden or not, and what is like them."""
    setup = """
from evenflow.sources.messages import UNFIT, parse_lines, parse_messages
from evenflow.stream.schema import parse_ddl
import pandas, pyarrow
def one(case):
    format_, ddl, text, good, _ = case
    schema = parse_ddl(ddl)
    together = parse_messages([good.encode(), text.encode(), good.encode()], schema, format_)
    try:
        alone = parse_lines(text.encode() + b"\\n", schema, format_)
    except UNFIT:
        return "bad" if together is None else "good together"
    return "bad together" if together is None else str(alone.to_pylist()[0])
"""
    exponents = ["1e-999999999", "-1E-99999999", "0e-0099999999", "1e+-99999999", ".5e-100000000", "1e-41", "1.0e-99999999"]
    ddl, good = "d decimal(9, 2), x double, s string", '{"d": 1.50, "x": 1e-05, "s": "a"}'
    cases = [("json", ddl, f'{{"d": "{number}"}}', good, "bad") for number in exponents]
    cases += [("json", ddl, f'{{"d": {number}}}', good, "bad") for number in exponents]
    cases += [
        ("json", ddl, '{"d": "1\\u0065-99999999"}', good, "bad"),
        ("json", ddl, '{"d": "1e\\u002D99999999"}', good, "bad"),
        ("json", ddl, '{"d": "1e-\\u0039999999"}', good, "bad"),
        ("json", "d array<struct<x: decimal(9, 2)>>", '{"d": [{"x": 1e-99999999}]}', '{"d": []}', "bad"),
        ("json", ddl, '{"d": "1e-1", "x": 1e-99, "s": "1e-99"}', good, "{'d': Decimal('0.10'), 'x': 1e-99, 's': '1e-99'}"),
        ("json", ddl, '{"d": 1, "x": 1, "s": "\\u0031e-99"}', good, "{'d': Decimal('1.00'), 'x': 1.0, 's': '1e-99'}"),
    ]
    cases += [("csv", ddl, f"{number},1,a", "1.50,1e-05,a", "bad") for number in exponents]
    cases += [("csv", ddl, f'" {number}",1,a', "1.50,1e-05,a", "bad") for number in exponents]
    cases += [
        ("csv", ddl, "NULL,1e-99,1e-99", "1.50,1e-05,a", "{'d': None, 'x': 1e-99, 's': '1e-99'}"),
        ("csv", ddl, '1e-1,1,"b\n1e-99"', "1.50,1e-05,a", "bad together"),
        ("csv", ddl, "1e-1,1,2f1e-4123-1e-99", "1.50,1e-05,a", "{'d': Decimal('0.10'), 'x': 1.0, 's': '2f1e-4123-1e-99'}"),
    ]
    assert [(case, found) for case, found in alone(setup, cases) if found != case[4]] == []


def test_no_decimal_of_a_file_is_looked_up_behind_a_table() -> None:
    """The same of files, which Arrow reads as they are. Method: the decimal is the last of 1 MB, a block ends in the middle of it, and what
    is like it is in a column of texts."""
    setup = """
import tempfile, os
import evenflow as ef
from evenflow.errors import SourceError
import pandas, pyarrow
def one(case):
    format_, line, head, good, rows, _ = case
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        with open(path, "w") as file:
            file.write(head + good * rows + line)
        reader = ef.sources.replay(path, speed=None, format=format_, schema="d decimal(9, 2), s string").open(0, 1)
        try:
            while not reader.ended:
                batch = reader.read(0, 10**6) or batch
        except SourceError as error:
            return "bad" if "cannot be read beyond row" in str(error) else str(error)
        return str(batch.batch.to_pylist()[-1] if hasattr(batch, "batch") else batch.to_pylist()[-1])
"""
    csv, json_ = ("csv", "d,s\n", '1.50,"1e-99"\n'), ("json", "", '{"d": 1.50, "s": "1e-99"}\n')
    block, lines = (1 << 20) // len(json_[2]), {"csv": ("{},a", '"{}",a'), "json": ('{{"d": {}}}', '{{"d": "{}"}}')}
    cases = [
        (format_, line.format(number), head, good, rows, "bad")
        for format_, head, good in (csv, json_)
        for number in ("1e-999999999", "0e-99999999", "1e-" + "0" * 2_000 + "99999999")
        for line in lines[format_]
        for rows in (0, block)
    ]
    cases += [("tsv", "1e-999999999\ta", "d\ts\n", "", 0, "bad")]
    cases += [("csv", "2.5,1e-99", "d,s\n", csv[2], block, "{'d': Decimal('2.50'), 's': '1e-99'}")]
    cases += [("json", '{"s": "1e-99", "d": "1e-1"}', "", json_[2], block, "{'d': Decimal('0.10'), 's': '1e-99'}")]
    assert [(case[:2], found) for case, found in alone(setup, cases) if found != case[5]] == []


# ---------------------------------------------------------------- schemas that a message names

AVRO = """
from evenflow.sources.avro import AvroDecoder, columns_of, record_of
import pandas, pyarrow
class Registry:
    url = "http://registry"
    def __init__(self, text):
        self.schema = lambda number: text
def one(case):
    _, own, written, body = case
    decoder = AvroDecoder(own, columns_of(record_of(own, "here"), "here"), Registry(written))
    value = bytes([0, 0, 0, 0, 7]) + bytes.fromhex(body)
    for _ in range(5):
        rows = decoder.rows([value])
    return "bad" if rows is None else str(rows.to_pylist()[0])
"""


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields.items()]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapped(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


def chain(count: int, *fields: str) -> dict[str, Any]:
    """Records of which each has fields of the one before it; all are named side by side."""
    inner = [record("R0", a="null"), *(record(f"R{at}", **dict.fromkeys(fields, f"R{at - 1}")) for at in range(1, count))]
    return record("O", **{f"f{at}": ["null", each] for at, each in enumerate(inner)})


def arrays(levels: int) -> Any:
    return "int" if not levels else array(arrays(levels - 1))


def deep(levels: int, symbols: int) -> dict[str, Any]:
    """A large type in records in each other."""
    if not levels:
        return {"type": "enum", "name": "N", "symbols": [f"S{at}" for at in range(symbols)]}
    return record(f"R{levels}", a=deep(levels - 1, symbols))


def length(number: int) -> bytes:
    """A whole number as Avro writes it."""
    left, made = (number << 1) ^ (number >> 63), b""
    while left > 0x7F:
        left, made = left >> 7, made + bytes([left & 0x7F | 0x80])
    return made + bytes([left])


OWN = {"type": "record", "name": "O", "fields": [{"name": "y", "type": "int", "default": 0}]}
MANY = length(2**62)
NODE = record("Node", next=["null", "Node"])
HARMLESS = record("O", x=record("Node", next=["null", "int"]), z="Node")
MARKED = {**HARMLESS, "__fastavro_parsed": True, "__named_schemas": {"Node": NODE, "O": HARMLESS}}
"""A schema that has fastavro's own marks of one that is parsed, and says another thing there."""
NO_BYTES = {
    "nulls": "null", "empty records": record("E"), "records of nulls": record("E", a="null", b=record("G", c="null")),
    "fixed of no size": fixed(0), "fixed of less": fixed(-1),
}  # fmt: skip
ITEMS = {
    "booleans": "boolean", "floats": "float", "doubles": "double", "fixed": fixed(3), "records": record("S", a="double", b="boolean"),
    "numbers": "long", "texts": "string", "bytes": "bytes", "enums": {"type": "enum", "name": "N", "symbols": ["a"]},
    "unions": ["null", "double"], "arrays": array("double"), "maps": mapped("double"),
}  # fmt: skip
"""The first five are what fastavro skips behind the end of a message as if it were there."""
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
WIDE = {**fixed(300_000), "logicalType": "decimal", "precision": 9, "scale": 2}
DIGITS = length(300_000) + b"\x55" * 300_000
BAD: dict[str, tuple[Any, Any, bytes]] = {
    "a record in itself": (OWN, record("O", x=NODE), b"\2" * 200_000 + b"\0"),
    "records in each other": (OWN, record("O", x=record("A", b=array(record("B", a="A")))), b"\2" * 200_000),
    "a record in its map": (OWN, record("O", x=record("A", b=mapped("A"))), b"\2\0" * 200_000),
    "a mark of fastavro's": (OWN, MARKED, b"\0" + b"\2" * 200_000 + b"\0"),
    "a chain of names": (OWN, chain(200, "a"), b"\0" * 199 + b"\2"),
    "twice the one before": (OWN, chain(60, "a", "b"), b"\0" * 59 + b"\2"),
    "arrays in arrays": (OWN, record("O", x=arrays(150)), b"\2" * 151 + b"\0" * 150),
    "arrays in arrays in arrays": (OWN, record("O", x=arrays(300)), b"\2" * 301 + b"\0" * 300),
    "brackets": (OWN, "[" * 100_000, b""),
    **{f"an array of {name}": (OWN, record("O", x=array(type_)), MANY) for name, type_ in NO_BYTES.items()},
    **{f"arrays in a map, of {name}": (OWN, record("O", x=mapped(array(type_))), b"\2\0" + MANY) for name, type_ in NO_BYTES.items()},
    **{f"{name} behind the end": (OWN, record("O", x=array(type_)), MANY) for name, type_ in ITEMS.items()},
    "many names that do not fit": (OWN, record("P", x=deep(80, 80_000)), b""),
    "a union of many names that do not fit": (OWN, [record("P", x=deep(80, 80_000))], b"\0"),
    "a decimal of many digits": (record("O", y=DECIMAL), record("O", y=DECIMAL, z="int"), DIGITS + b"\0"),
    "a fixed decimal of many digits": (record("O", y=WIDE), record("O", y=WIDE, z="int"), b"\x55" * 300_000 + b"\0"),
    "a decimal in an error": (record("O", y=record("P", a=DECIMAL)), record("O", y={**record("P", a=DECIMAL), "type": "error"}), DIGITS),
    "a decimal of many places": (record("O", y=DECIMAL), record("O", y={**DECIMAL, "precision": 10**9, "scale": 10**9 - 1}), b"\2\1"),
    "a length of text": (record("O", y="string"), record("O", y="string", z="int"), length(2**40) + b"ab"),
    "a length of bytes": (record("O", y="bytes"), record("O", y="bytes", z="int"), length(2**40) + b"ab"),
    "a length below zero": (record("O", y="bytes"), record("O", y="bytes", z="int"), length(-5) + b"ab"),
    "a count of numbers": (record("O", y=array("long")), record("O", y=array("long"), z="int"), MANY + b"\2\2"),
    "a count of keys": (OWN, record("O", x=mapped("null")), MANY + b"\2a\2b"),
    "a size of fixed": (OWN, record("O", x=array(fixed(2**40))), b"\2abc\0"),
    "a varint": (OWN, record("O", y="int"), b"\xff" * 1_000_000),
}
GOOD: dict[str, tuple[Any, Any, bytes, str]] = {
    "doubles that are skipped": (OWN, record("O", x=array("double")), b"\4" + bytes(16) + b"\0", "{'y': 0}"),
    "a block with its size": (OWN, record("O", x=array("boolean"), y="int"), b"\3\4\1\1\0\6", "{'y': 3}"),
    "nulls by name": (OWN, record("O", x=mapped("null"), y="int"), b"\2\2a\0\6", "{'y': 3}"),
    "empty records of a union": (OWN, record("O", x=array(["null", record("E")]), y="int"), b"\4\0\2\0\6", "{'y': 3}"),
    "a name that comes twice": (OWN, record("O", x=record("P", a="int"), z=array("P"), y="int"), b"\2\2\2\0\6", "{'y': 3}"),
    "some levels": (OWN, record("O", x=arrays(50), y="int"), b"\0\6", "{'y': 3}"),
    "a decimal with room": (record("O", y=DECIMAL), record("O", y=DECIMAL), b"\x20" + bytes(15) + b"\x7b", "{'y': Decimal('1.23')}"),
    "a decimal of another scale": (record("O", y=DECIMAL), record("O", y={**DECIMAL, "scale": 1}), b"\2\x7b", "{'y': Decimal('12.30')}"),
}  # fmt: skip


def test_a_message_bounds_what_is_read_of_it_whatever_schema_it_names() -> None:
    """Goal: who writes a message has its schema chosen, and ends no site by that. Method: schemas without bounds, and some with."""
    cases = {**BAD, **{name: case[:3] for name, case in GOOD.items()}}
    told = [
        (name, json.dumps(own), written if isinstance(written, str) else json.dumps(written), body.hex())
        for name, (own, written, body) in cases.items()
    ]
    found = [(case[0], row) for case, row in alone(AVRO, told)]
    assert found == [(name, "bad") for name in BAD] + [(name, row) for name, (_, _, _, row) in GOOD.items()]


# ---------------------------------------------------------------- heads and messages of Protobuf

PROTOBUF = """
from google.protobuf import descriptor_pb2
from evenflow.sources.protobuf import ProtobufDecoder, columns_of, message_class
import pandas, pyarrow
said = descriptor_pb2.FileDescriptorSet()
file = said.file.add(name="a.proto", package="a", syntax="proto3")
file.message_type.add(name="M").field.add(name="x", number=1, type=5, label=1)
class_ = message_class(said.SerializeToString(), "a.M")
def one(case):
    rows = ProtobufDecoder(class_, columns_of(class_), case[1]).rows([bytes.fromhex(case[2])])
    return "bad" if rows is None else str(rows.to_pylist()[0])
"""
HEAD = b"\0\0\0\0\7"
BODY = b"\x08\5"


def test_heads_and_messages_of_protobuf_have_bounds() -> None:
    """Goal: a long number, or a long list of indexes, takes no time. Method: heads at the bounds and beyond, and messages that are deep."""
    cases = {
        "a number without end": (True, HEAD + b"\xff" * 1_000_000, "bad"),
        "an index without end": (True, HEAD + b"\2" + b"\xff" * 1_000_000, "bad"),
        "a number that is cut off": (True, HEAD + b"\xff" * 9, "bad"),
        "a number of eleven bytes": (True, HEAD + b"\x80" * 10 + b"\0" + BODY, "bad"),
        "a number of ten bytes": (True, HEAD + b"\x80" * 9 + b"\0" + BODY, "{'x': 5}"),
        "a count below zero": (True, HEAD + b"\1" + BODY, "bad"),
        "a hundred indexes": (True, HEAD + length(100) + b"\0" * 100 + BODY, "{'x': 5}"),
        "more of them": (True, HEAD + length(101) + b"\0" * 101 + BODY, "bad"),
        "as many as there are bytes": (True, HEAD + length(1_000_000) + b"\0" * 1_000_000 + BODY, "bad"),
        "more than any message has": (True, HEAD + MANY + b"\0" * 1_000_000, "bad"),
        "groups in groups": (False, b"\x13" * 500_000 + b"\x14" * 500_000, "bad"),
        "groups in groups that do not end": (False, b"\x13" * 1_000_000, "bad"),
        "a length beyond the end": (False, b"\x12\xff\xff\xff\xff\7ab", "bad"),
    }
    found = alone(PROTOBUF, [(name, registered, value.hex()) for name, (registered, value, _) in cases.items()])
    assert [(case[0], row) for case, row in found] == [(name, row) for name, (_, _, row) in cases.items()]
