"""An element of every list at one place is the element that each list has at that place, whatever it was cut from."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from evenflow.errors import EvenflowError
from evenflow.query.expression import compile_expression

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int32(), [[1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    "numbers and nulls": (pa.float64(), [[1.5, None], [None, 4.0], [6.0, 7.0, 0.5], [8.0, 9.0]]),
    "booleans": (pa.bool_(), [[True, False], [False, False], [True, True], [False, True]]),
    "texts": (pa.string(), [["a", "b"], ["c", None], ["", "e"], ["f", "g"]]),
    "structures": (pa.struct([("x", pa.int64())]), [[{"x": 1}, None], [{"x": None}, {"x": 2}], [{"x": 3}] * 2, [{"x": 4}] * 3]),
    "some short": (pa.int64(), [[1, 2], [3], [], [4, 5]]),
    "some null": (pa.int64(), [[1, 2], None, [3, 4], [5, 6]]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("cut", [(0, 4), (1, 3), (2, 0)])
def test_one_place_is_what_each_has_there(name: str, cut: tuple[int, int]) -> None:
    type_, lists = VALUES[name]
    batch = pa.record_batch({"l": pa.array(lists, pa.list_(type_)), "i": pa.array([1] * 4), "j": pa.array([2] * 4, pa.int32())}).slice(*cut)
    wanted = [None if each is None or len(each) < 2 else each[1] for each in lists[cut[0] : sum(cut)]]
    for text in ("get(l, 1)", "get(l, i)", "try_element_at(l, 2)", "try_element_at(l, j)", "try_element_at(l, -1 + 3)"):
        found = compile_expression(text, batch.schema)(batch)
        assert found.type == type_ and found.to_pylist() == wanted, text
    short = any(each is not None and len(each) < 2 for each in lists[cut[0] : sum(cut)])
    for text in ("l[1]", "l[i]", "element_at(l, 2)"):
        if short:
            with pytest.raises(EvenflowError, match="there is no element"):
                compile_expression(text, batch.schema)(batch)
        else:
            assert compile_expression(text, batch.schema)(batch).to_pylist() == wanted, text
