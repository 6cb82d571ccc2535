"""One batch of edge values: for every type the values at which functions go wrong, dealt into rows by a seed.

Times are drawn as whole numbers, because Python's datetime ends at the years 1 and 9999 and the engine's do not.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
DAY_US: Final = 86_400_000_000

TINY: Final = (0, 1, -1, 7, 127, -128, None)
SMALL: Final = (0, 1, -1, 300, 32767, -32768, None)
INTS: Final = (0, 1, -1, 2, 3, 7, -7, 10, 31, 32, 33, 63, 64, 65, -31, -33, 100, 2147483647, -2147483648, 2147483646, 55555, None, None)
LONGS: Final = (
    0, 1, -1, 5, 10, -10, 86_400, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, -(2**53) - 1, 10**18, 253_402_300_799, 253_402_300_800,
    -62_135_596_800, -62_135_596_801, 9_223_372_036_854, 9_223_372_036_855, 2**63 - 1, -(2**63), 2**63 - 2, None, None,
)  # fmt: skip
FLOATS: Final = (0.0, -0.0, 1.5, -2.5, 0.1, NAN, INF, -INF, 1.401298464324817e-45, 3.4028234663852886e38, 16777216.0, 1e-5, 100.0, None)
DOUBLES: Final = (
    0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 2.675, 0.1, 1 / 3, 2.0, 3.0, 7.25, 1234.5678, NAN, INF, -INF, 5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308, -1.7976931348623157e308, 1e15, 1e16, 1e17, 1e22, 1e-3, 9.999e-4, 1e7, 9999999.999, 123456789.125, 2147483647.0,
    2147483648.0, -2147483649.0, 9.223372036854775807e18, -9.223372036854775808e18, 4503599627370497.5, None, None,
)  # fmt: skip
TEXTS: Final = (
    "", " ", "a", "A", "hello", "Hello World", "hello, hELLO-world", "  pad  ", "\t tab\n", "äöü ß 日本", "ÄÖÜ", "ǆ", "İstanbul", "ı",
    "ﬁn", "ΑΣ",
    "e\u0301", "👩\u200d👩\u200d👧", "𝔘𝔫", "a_b%c", "x,y,,z", ",", "0", "00", "aXbXc", "null", "a\x00b", "\\", "a\\b", "'", '"', "$1",
    ".*", "(", "[a",
    "\u00a0x\u00a0", "\u3000", "ab" * 40, "\u200b", "\ufeffx", "line1\nline2", "trailing\n", "1", "true", None, None,
)  # fmt: skip
MARKS: Final = (
    "",
    "l",
    "a",
    "%",
    "_",
    ",",
    "lo",
    "ö",
    "日",
    "X",
    "\n",
    "h%",
    "%o",
    "a_b\\%c",
    "x",
    " ",
    ".",
    "e\u0301",
    "👩",
    "ß",
    "0",
    "\\",
    None,
)
NUMERALS: Final = (
    "1", " 22 ", "-3", "+4", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "127", "128",
    "1.5", "-1.5", "1e3", "1E-3", "NaN", "nan", "Infinity", "-inf", "+Infinity", "0x1F", "1_000", "1.", ".", ".5", "", " ", "abc",
    "1d", "1f",
    "1L", "1D", "1.5f", "٣", "１", "true", "TRUE", "t", "yes", "Y", "n", "0", "1e400", "1e-400", "00012", "-0", "-0.0", "\u00a01",
    "1\t", "\n1", "1 2",
    "--1", "+-1", "1e", "e1", "1,000", "12345678901234567890.123", "0.005", "99999999.995", None,
)  # fmt: skip
MOMENTS: Final = (
    "2024-02-29", "2023-02-29", "2024-3-5 01:02:03", "2024-03-05T1:2:3", "1969-12-31T23:59:59.5Z", "2000-01-01 00:00:00+02:00",
    "2000-01-01 00:00:00 Europe/Berlin", "2000-01-01 00:00:00 GMT+1", "2000-01-01 00:00:00UTC", "2000-07-01 12:00 America/New_York",
    "2000-01-01 00:00:00+2", "2000-01-01 00:00:00+0230", "2000-01-01 00:00:00+19:00", "2000-01-01 00:00:00-18:00", "1999", "2024-01",
    "2024-13-01",
    "2024-00-10", "2024-01-01 5:06:07.123456", "2024-01-01 05:06:07.123456789", "2024-01-01 05:06:07.", "2024-01-01 24:00:00",
    "2024-01-01 23:60:00",
    "2024-01-01 23:59:60", "0000-01-01", "0001-01-01", "-0001-01-01", "9999-12-31 23:59:59.999999", "10000-01-01", "+10000-01-01",
    "294247-01-10",
    "99999-01-01 00:00:00", "1582-10-10", "2024-01-01T", "2024-01-01 ", " 2024-01-01", "2024-01-01 00", "2024-01-01 00:00", "2024-1-1",
    "24-01-01",
    "T12:34", "12:34:56", "now", "today", "epoch", "", "abc", "2024-01-01x", "2024-01-01 x", "2024/01/01", "20240101",
    "2024-01-01 00:00:00 PST",
    "2024-01-01 00:00:00 Mars/Base", "2024-01-01 00:00:00Zx", "2024-01-01 00:00:00 Z", "2024-01-01T00:00:00+00:00:30", None,
)  # fmt: skip
STAMPS: Final = (
    0, 1, -1, 999_999, -1_000_000, 1_709_214_359_123_456, 1_704_067_200_000_000, 1_704_067_199_999_999, 946_684_801_000_000,
    -2_208_988_800_000_000,
    -12_219_292_800_000_000, -12_219_292_800_000_001, -62_135_596_800_000_000, -62_135_596_800_000_001, 253_402_300_799_999_999,
    253_402_300_800_000_000, 9_007_199_254_740_993, 9_007_199_254_999_999, 9_500_000_000_999_999, -9_007_199_254_740_993,
    1_711_846_800_000_000,
    1_735_603_200_000_000, 1_230_768_000_000_000, 2**63 - 1, -(2**63), 2**63 - 1 - DAY_US, None, None,
)  # fmt: skip
DAYS: Final = (
    0, 1, -1, 19782, 19781, 19783, 10957, 11016, 47540, -719162, -719163, 2932896, 2932897, -141427, -141428, 106751991, -106751991,
    106751992, 2**31 - 1,
    -(2**31), 20089, 14245, 19722, None, None,
)  # fmt: skip
SPANS: Final = (0, 1, -1, 1_000_000, -1_500_000, 3_600_000_000, DAY_US, -DAY_US, 90 * DAY_US + 1, 2**63 - 1, -(2**63), None)
BYTES: Final = (b"", b"a", b"hello", b"\x00\x7f", b"\xc3\xa9", b" ", b"\xff\xfe", None)
CENTS: Final = tuple(
    None if v is None else Decimal(v) for v in ("0.00", "1.00", "-1.50", "2.50", "0.05", "99999999.99", "-99999999.99", "12.34", None)
)
LONG_DECIMALS: Final = tuple(None if v is None else Decimal(v) for v in (
    "0", "1", "-1.5", "2.5", "0.000000000000000001", "-0.000000000000000001", "99999999999999999999.999999999999999999",
    "-99999999999999999999.999999999999999999", "9223372036854775807", "9223372036854775808", None,
))  # fmt: skip

COLUMNS: Final[dict[str, tuple[pa.DataType, Sequence[Any]]]] = {
    "a": (pa.int8(), TINY),
    "h": (pa.int16(), SMALL),
    "i": (pa.int32(), INTS),
    "j": (pa.int32(), INTS),
    "l": (pa.int64(), LONGS),
    "k": (pa.int64(), LONGS),
    "f": (pa.float32(), FLOATS),
    "d": (pa.float64(), DOUBLES),
    "e": (pa.float64(), DOUBLES),
    "s": (pa.string(), TEXTS),
    "s2": (pa.string(), TEXTS),
    "r": (pa.string(), MARKS),
    "n": (pa.string(), NUMERALS),
    "m": (pa.string(), MOMENTS),
    "b": (pa.bool_(), (True, False, None)),
    "c": (pa.bool_(), (True, False, None)),
    "t": (pa.timestamp("us", "UTC"), STAMPS),
    "t2": (pa.timestamp("us", "UTC"), STAMPS),
    "z": (pa.timestamp("us"), STAMPS),
    "u": (pa.date32(), DAYS),
    "u2": (pa.date32(), DAYS),
    "v": (pa.duration("us"), SPANS),
    "w": (pa.binary(), BYTES),
    "p": (pa.decimal128(10, 2), CENTS),
    "q": (pa.decimal128(38, 18), LONG_DECIMALS),
}

LITERALS: Final = (
    "null", "cast(null as int)", "cast(null as string)", "0", "1", "-1", "2", "3", "5", "31", "33", "64", "-33", "2147483647",
    "-2147483648", "0L",
    "4294967296L", "9223372036854775807", "-9223372036854775808", "0.0D", "-0.0D", "1.5D", "double('NaN')", "double('Infinity')",
    "float(0.1D)",
    "true", "false", "''", "' '", "'a'", "'0'", "'l'", "'hello'", "','", "'%o%'", "'%'", "'_'", "'[a-c]+'", "'(.)(.)'", "'äß'", "'1'",
    "'2.5'", "'-7'",
    "'2024-02-29'", "'2024-02-29 12:34:56.789'", "date '2024-02-29'", "date '0001-01-01'", "date '9999-12-31'",
    "timestamp '2024-02-29 12:34:56.789'",
    "timestamp '2300-01-01 00:00:00'", "timestamp_ntz '2024-02-29 12:34:56'", "interval 1 day", "interval -5 seconds",
    "interval '1 02:03:04.5' day to second",
    "'year'", "'month'", "'week'", "'day'", "'hour'", "'second'", "'quarter'", "'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'", "256", "'*'",
    "'xy'",
)  # fmt: skip
"""Constants as they are written; those of one meaning only, such as units, are among them, because some functions take nothing else."""


def edge_batch(seed: int, rows: int) -> pa.RecordBatch:
    """A batch in which every column has each of its edge values, as far as `rows` suffice, in an order of its own."""
    rng = random.Random(f"edges {seed}")
    columns = {}
    for name, (type, values) in COLUMNS.items():
        dealt = [values[k % len(values)] for k in range(max(rows, len(values)))]
        rng.shuffle(dealt)
        columns[name] = _column(type, dealt[:rows])
    return pa.record_batch(columns)


def _column(type: pa.DataType, values: Sequence[Any]) -> pa.Array:
    raw = {8: pa.int8(), 32: pa.int32(), 64: pa.int64()}
    if pa.types.is_temporal(type):
        return pa.array(values, raw[type.bit_width]).view(type)
    return pa.array(values, type)
