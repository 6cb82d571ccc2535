"""Messages whose writers mean harm: numbers, schemas and lengths that would take a library's time, memory or stack without end.

Each in a process of its own, whose time and memory are limited: what goes wrong here holds the interpreter, or ends it.
"""

from __future__ import annotations

import subprocess
import sys

LIMITS = """
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 4, resource.RLIM_INFINITY))
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), resource.RLIM_INFINITY))
"""
"""Four seconds and a gigabyte from here on."""


def alone(imports: str, code: str) -> list[str]:
    """What code prints, line by line, in a process that has these imports and little else."""
    done = subprocess.run([sys.executable, "-c", imports + LIMITS + code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout.splitlines()


# ---------------------------------------------------------------- numbers

NUMBERS = ["1e999999999", "1e300000", "1e-999999999", "-0e-999999999", "1e999999999999999999", "0." + "0" * 99 + "1"]
TYPES = ["bigint", "int", "tinyint", "date", "timestamp", "timestamp_ntz", "decimal(9, 2)", "decimal(38, 38)"]


def test_no_number_of_an_envelope_is_written_out() -> None:
    """Goal: a few bytes take no hours, and end no site. Method: numbers with exponents in columns of every kind, nested ones too."""
    nested = [("array<%s>", "[1, %s]"), ("array<struct<x: %s>>", '[{"x": %s}]'), ("map<string, %s>", '{"x": %s}')]
    cases = [(type_, text) for type_ in TYPES for number in NUMBERS for text in (number, f'"{number}"')]
    cases += [(outer % type_, inner % number) for outer, inner in nested for type_ in TYPES for number in NUMBERS]
    imports = """
from evenflow.sources.debezium import DebeziumDecoder, Misfit
from evenflow.stream.schema import parse_ddl
import pandas, pyarrow
"""
    code = f"""
for type_, value in {cases!r}:
    try:
        DebeziumDecoder(parse_ddl("v " + type_)).rows(b'{{"op": "c", "after": {{"v": %s}}}}' % value.encode())
        print(type_, value)
    except Misfit as error:
        assert "column 'v' is not" in str(error), error
for type_, unit in (("timestamp", b"io.debezium.time.MicroTimestamp"), ("date", b"io.debezium.time.Date")):
    schema = b'{{"fields": [{{"field": "after", "fields": [{{"field": "v", "name": "%s"}}]}}]}}' % unit
    for number in {NUMBERS!r}:
        payload = b'{{"op": "u", "before": {{"v": 1}}, "after": {{"v": %s}}}}' % number.encode()
        try:
            DebeziumDecoder(parse_ddl("v " + type_)).rows(b'{{"schema": %s, "payload": %s}}' % (schema, payload))
            print(type_, number)
        except Misfit as error:
            assert "column 'v' is not" in str(error), error
"""
    assert alone(imports, code) == []


def test_no_number_of_a_line_with_maps_is_written_out() -> None:
    """The same of lines that are read here and not by Arrow."""
    cases = [(type_, text) for type_ in TYPES for number in NUMBERS for text in (number, f'"{number}"')]
    imports = """
from evenflow.sources.messages import UNFIT, parse_lines
from evenflow.stream.schema import parse_ddl
import pandas, pyarrow
"""
    code = f"""
for type_, value in {cases!r}:
    try:
        parse_lines(b'{{"m": {{"k": %s}}}}\\n' % value.encode(), parse_ddl(f"m map<string, {{type_}}>"), "json")
        print(type_, value)
    except UNFIT:
        pass
"""
    assert alone(imports, code) == []
