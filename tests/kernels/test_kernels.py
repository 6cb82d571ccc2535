"""Hashing and routing: the frozen vectors of protocol E1, and the properties that identity and routing rely on."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from evenflow.kernels import hash as kernels

D = decimal.Decimal
COLUMNS = {
    "int64": pa.array([0, 1, -1, None, 2**62]),
    "int8": pa.array([0, 1, -1, None, 5], pa.int8()),
    "double": pa.array([0.0, -0.0, float("nan"), None, 1.5]),
    "float": pa.array([0.0, -0.0, float("nan"), None, 1.5], pa.float32()),
    "bool": pa.array([True, False, None, True, False]),
    "date": pa.array([datetime.date(1970, 1, 1), datetime.date(2026, 7, 1), None], pa.date32()),
    "timestamp": pa.array([0, 1_700_000_000_000_000, None], pa.timestamp("us")),
    "decimal": pa.array([D("1.50"), D("-1.50"), None], pa.decimal128(10, 2)),
    "string": pa.array(["", "a", "abcdefgh", None, "abcdefghi", "zażółć gęślą jaźń"]),
    "binary": pa.array([b"", b"a", b"abcdefgh", None, b"abcdefghi"]),
}
VECTORS: dict[str, list[int]] = {
    "int64": [
        0x9CA066F1A4AB2EEA,
        0xE5FDC025E13EEED5,
        0x25B775FAECA8F520,
        0xA0761D6478BD642F,
        0x1F43B10D494CA68F,
    ],
    "int8": [
        0x9CA066F1A4AB2EEA,
        0xE5FDC025E13EEED5,
        0x25B775FAECA8F520,
        0xA0761D6478BD642F,
        0x6C45141841D3019F,
    ],
    "double": [
        0x9CA066F1A4AB2EEA,
        0x9CA066F1A4AB2EEA,
        0xCA444EE883B278F5,
        0xA0761D6478BD642F,
        0x7849CFD64EB7A65D,
    ],
    "float": [
        0x9CA066F1A4AB2EEA,
        0x9CA066F1A4AB2EEA,
        0xCA444EE883B278F5,
        0xA0761D6478BD642F,
        0x7849CFD64EB7A65D,
    ],
    "bool": [
        0xE5FDC025E13EEED5,
        0x9CA066F1A4AB2EEA,
        0xA0761D6478BD642F,
        0xE5FDC025E13EEED5,
        0x9CA066F1A4AB2EEA,
    ],
    "date": [
        0x9CA066F1A4AB2EEA,
        0x9D5F90B9EA441927,
        0xA0761D6478BD642F,
    ],
    "timestamp": [
        0x9CA066F1A4AB2EEA,
        0x1EC289FFFFF2D6E4,
        0xA0761D6478BD642F,
    ],
    "decimal": [
        0x8AF274A6D028A790,
        0xDF7B76A1874B2FAA,
        0xA0761D6478BD642F,
    ],
    "string": [
        0x03A6DA1ABA888B16,
        0xC9CFACCF5DDBEAEA,
        0x9F484DEB4BB0D516,
        0xA0761D6478BD642F,
        0x58A00AD14A883458,
        0x5F3735E9FF9E4FC2,
    ],
    "binary": [
        0x03A6DA1ABA888B16,
        0xC9CFACCF5DDBEAEA,
        0x9F484DEB4BB0D516,
        0xA0761D6478BD642F,
        0x58A00AD14A883458,
    ],
    "i,s": [
        0xE7BBC4E4297E83B1,
        0x55C6AB2731CA29D8,
        0x2F02EF1CF8BE34C7,
        0xAE8308FC74543AE6,
        0xE5275F70E581EC06,
    ],
}
CHECKS: dict[str, list[int]] = {
    "int64": [
        0x0000000000000000,
        0x0000000000000001,
        0xFFFFFFFFFFFFFFFF,
        0xE7037ED1A0B428DB,
        0x4000000000000000,
    ],
    "int8": [
        0x0000000000000000,
        0x0000000000000001,
        0xFFFFFFFFFFFFFFFF,
        0xE7037ED1A0B428DB,
        0x0000000000000005,
    ],
    "double": [
        0x0000000000000000,
        0x0000000000000000,
        0x7FF8000000000000,
        0xE7037ED1A0B428DB,
        0x3FF8000000000000,
    ],
    "float": [
        0x0000000000000000,
        0x0000000000000000,
        0x7FF8000000000000,
        0xE7037ED1A0B428DB,
        0x3FF8000000000000,
    ],
    "bool": [
        0x0000000000000001,
        0x0000000000000000,
        0xE7037ED1A0B428DB,
        0x0000000000000001,
        0x0000000000000000,
    ],
    "date": [
        0x0000000000000000,
        0x000000000000509B,
        0xE7037ED1A0B428DB,
    ],
    "timestamp": [
        0x0000000000000000,
        0x00060A24181E4000,
        0xE7037ED1A0B428DB,
    ],
    "decimal": [
        0xDCA6064B64CF8A85,
        0x46414E67646288B0,
        0x259DD713BA0FCA4C,
    ],
    "string": [
        0x0392CFF66DAE6EEE,
        0x926C454A944EB556,
        0xC17163165515E68D,
        0x259DD713BA0FCA4C,
        0xA5E03B52B69AB7EC,
        0x98421C83F8C9C39D,
    ],
    "binary": [
        0x0392CFF66DAE6EEE,
        0x926C454A944EB556,
        0xC17163165515E68D,
        0x259DD713BA0FCA4C,
        0xA5E03B52B69AB7EC,
    ],
    "i,s": [
        0x4F259BBF36149DEB,
        0xBF3FD42B511E1188,
        0x59CF991DC99AAC53,
        0xED320BF2D09077D1,
        0xFACF181D74BE2D2C,
    ],
}


def one(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], ["k"])


@pytest.mark.parametrize("name", COLUMNS)
def test_hashes_are_frozen_for_ever(name: str) -> None:
    assert kernels.hash_columns(one(COLUMNS[name]), ["k"]).tolist() == VECTORS[name]
    assert kernels.check_words(one(COLUMNS[name]), ["k"]).tolist() == CHECKS[name]


def test_hashes_of_several_columns_are_frozen_and_know_their_order() -> None:
    batch = pa.RecordBatch.from_arrays([COLUMNS["int64"], COLUMNS["string"].slice(0, 5)], ["i", "s"])
    assert kernels.hash_columns(batch, ["i", "s"]).tolist() == VECTORS["i,s"]
    assert kernels.check_words(batch, ["i", "s"]).tolist() == CHECKS["i,s"]
    assert kernels.hash_columns(batch, ["s", "i"]).tolist() != VECTORS["i,s"]


def test_the_same_value_hashes_alike_in_every_width_and_encoding() -> None:
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.date32(), pa.uint8()):
        assert kernels.hash_columns(one(pa.array([5], pa.int32()).cast(kind)), ["k"])[0] == VECTORS["int8"][4]
    assert VECTORS["float"] == VECTORS["double"]
    assert VECTORS["double"][0] == VECTORS["double"][1], "-0.0 is 0.0"
    nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)
    assert kernels.hash_columns(one(pa.array(nan)), ["k"])[0] == VECTORS["double"][2]
    text = COLUMNS["string"]
    for encoded in (text.cast(pa.large_string()), text.dictionary_encode(), text.cast(pa.binary())):
        assert kernels.hash_columns(one(encoded), ["k"]).tolist() == VECTORS["string"]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_slice_hashes_as_the_rows_it_shows(name: str) -> None:
    whole = kernels.hash_columns(one(COLUMNS[name]), ["k"])
    part = kernels.hash_columns(one(COLUMNS[name].slice(1)), ["k"])
    assert part.tolist() == whole[1:].tolist()


def test_null_is_a_key_that_no_value_has() -> None:
    null = one(pa.array([None], pa.int64()))
    check = kernels.check_words(null, ["k"])
    alias = one(pa.array(check.view(np.int64)))
    assert kernels.hash_columns(alias, ["k"])[0] != kernels.hash_columns(null, ["k"])[0]


def test_nearby_keys_spread_over_high_and_low_bits() -> None:
    values = pa.array(np.arange(1 << 16) * 5_000_000)
    for array in (values, values.cast(pa.string())):
        hashes = kernels.hash_columns(one(array), ["k"])
        assert np.unique(hashes).size == 1 << 16
        for shift in (0, 20, 40, 56):
            counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
            assert counts.min() > 170, shift
            assert counts.max() < 350, shift


def test_the_two_halves_of_a_string_key_are_independent() -> None:
    batch = one(pa.array([f"key-{i}" for i in range(1 << 14)]))
    both = kernels.hash_columns(batch, ["k"]) ^ kernels.check_words(batch, ["k"])
    flips = np.unpackbits(both.view(np.uint8)).mean()
    assert 0.49 < flips < 0.51
    assert np.unique(both).size == 1 << 14


def test_partitions_are_contiguous_ranges_of_key_groups() -> None:
    table = kernels.table_of_ranges(7, 4096)
    assert np.all(np.diff(table) >= 0)
    assert (table[0], table[-1]) == (0, 6)
    assert np.bincount(table).max() - np.bincount(table).min() <= 1
    hashes = np.array([0, 2**64 - 1, 1 << 52, (1 << 52) - 1, 4095 << 52], np.uint64)
    groups = np.arange(4096, dtype=np.int32)
    assert kernels.partition_of(hashes, groups).tolist() == [0, 4095, 1, 0, 4095]
    with pytest.raises(ValueError, match="5000 partitions"):
        kernels.table_of_ranges(5000)


def test_scatter_is_a_stable_sort_by_destination() -> None:
    rng = np.random.default_rng(1)
    destination = rng.integers(0, 5, 1000).astype(np.int32)
    order, counts = kernels.scatter(destination, 7)
    assert order.tolist() == np.argsort(destination, kind="stable").tolist()
    assert counts.tolist() == np.bincount(destination, minlength=7).tolist()


STRUCTS = pa.array(
    [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None, {"a": None, "b": None}], pa.struct([("a", pa.int64()), ("b", pa.string())])
)
LISTS = pa.array([[1, 2], [2, 1], [], None, [None], [0]], pa.list_(pa.int64()))
MAPS = pa.array([[("k", 1), ("j", None)], [], None, [("k", None)]], pa.map_(pa.string(), pa.int64()))
DEEP = pa.array([[{"a": 1, "b": "x"}], [None, {"a": 1, "b": "x"}], None, []], pa.list_(STRUCTS.type))


@pytest.mark.parametrize("array", [STRUCTS, LISTS, MAPS, DEEP], ids=["structs", "lists", "maps", "deep"])
def test_nested_values_have_hashes_of_what_they_show(array: pa.Array) -> None:
    hashes, checks = kernels.hash_columns(one(array), ["k"]), kernels.check_words(one(array), ["k"])
    assert len({*hashes.tolist()}) == len({*checks.tolist()}) == len(array), "null, empty and a null inside are not the same"
    again = pa.concat_arrays([array, array]).slice(1, len(array))
    assert kernels.hash_columns(one(again), ["k"]).tolist() == [*hashes[1:].tolist(), hashes[0]]
    hidden = pa.array([True, *[False] * (len(array) - 1)])
    blank = pc.if_else(hidden, pa.scalar(None, array.type), array)
    assert kernels.hash_columns(one(blank), ["k"])[1:].tolist() == hashes[1:].tolist()


def test_hashes_of_nested_values_are_frozen_for_ever() -> None:
    found = {name: int(kernels.hash_columns(one(array), ["k"])[0]) for name, array in (("struct", STRUCTS), ("list", LISTS), ("map", MAPS))}
    assert found == {"struct": 10410461066798467224, "list": 12695474868787110600, "map": 5664807922053489977}
