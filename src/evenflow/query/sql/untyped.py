"""Functions of which Spark takes a null without a type, and what they give then: a null of their type, whatever their other arguments."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from evenflow.query.sql.types import BINARY, DATE, DOUBLE, INT, NULL, STRING, TIMESTAMP, TIMESTAMP_NTZ

_OF: Final[tuple[tuple[pa.DataType, str], ...]] = (
    (INT, "size cardinality array_size bit_count regexp_count regexp_instr"),
    (pa.int8(), "bit_get getbit"),
    (STRING, "array_join from_unixtime decode regexp_extract regexp_replace regexp_substr sha2 to_char to_varchar date_format"),
    (STRING, "to_json to_csv"),
    (BINARY, "encode to_binary try_to_binary aes_decrypt try_aes_decrypt"),
    (DOUBLE, "date_part datepart months_between"),
    (DATE, "trunc try_to_date to_date"),
    (TIMESTAMP, "timestamp_seconds timestamp_millis timestamp_micros date_trunc to_timestamp try_to_timestamp to_timestamp_ltz"),
    (TIMESTAMP_NTZ, "to_timestamp_ntz"),
    (pa.list_(STRING), "split regexp_extract_all"),
    (pa.list_(NULL), "map_keys map_values array_distinct"),
    (pa.map_(STRING, STRING), "str_to_map"),
)
NULL_OF: Final[dict[str, pa.DataType]] = {name: type for type, names in _OF for name in names.split()}
"""The type of the null that they give. Held to Spark by tests/oracle/test_more_functions.py."""
_FIRST_ONLY: Final = frozenset({"to_json", "to_csv", "to_char", "to_varchar"})


def null_of(name: str, count: int, places: tuple[int, ...]) -> pa.DataType | None:
    """The type of the null that a function of so many arguments gives for nulls without a type at these places; None if it does not."""
    if not places or (name in _FIRST_ONLY and 0 not in places) or (name == "decode" and count > 2):  # Where null is one of the values.
        return None
    return NULL_OF.get(name)
