"""The rows that every query of the corpus reads: few, with nulls, repeated ones and times out of order, and none of them late."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

BEGIN: Final = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
DISORDER_S: Final = 8
"""No row is further behind the latest before it; watermarks of the queries stay at least 10 seconds behind."""
STAMP: Final = pa.timestamp("us", "UTC")
PLACE: Final = pa.struct([("city", pa.string()), ("lat", pa.float64()), ("floor", pa.int32())])
PART: Final = pa.struct([("sku", pa.string()), ("qty", pa.int32()), ("price", pa.float64())])

EVENTS: Final = pa.schema([
    ("id", pa.int64()), ("ts", STAMP), ("device", pa.string()), ("kind", pa.string()), ("reading", pa.float64()), ("level", pa.int32()),
    ("total", pa.int64()), ("amount", pa.decimal128(10, 2)), ("day", pa.date32()), ("label", pa.string()), ("body", pa.string()),
    ("line", pa.string()), ("made", pa.string()), ("tags", pa.list_(pa.string())), ("marks", pa.list_(pa.int32())), ("place", PLACE),
    ("attrs", pa.map_(pa.string(), pa.string())), ("parts", pa.list_(PART)), ("ok", pa.bool_()),
])  # fmt: skip
ORDERS: Final = pa.schema([
    ("order_id", pa.int64()), ("at", STAMP), ("customer", pa.string()), ("price", pa.decimal128(12, 2)), ("count", pa.int32()),
    ("status", pa.string()), ("items", pa.list_(PART)),
])  # fmt: skip
PAYMENTS: Final = pa.schema([
    ("payment_id", pa.int64()), ("order_id", pa.int64()), ("paid", STAMP), ("sum", pa.decimal128(12, 2)), ("method", pa.string()),
])  # fmt: skip
IMPRESSIONS: Final = pa.schema([("ad", pa.int32()), ("shown", STAMP), ("site", pa.string()), ("cost", pa.float64())])
CLICKS: Final = pa.schema([("ad", pa.int32()), ("clicked", STAMP), ("person", pa.string())])
DEVICES: Final = pa.schema([("device", pa.string()), ("owner", pa.string()), ("top", pa.float64()), ("since", pa.date32())])
CUSTOMERS: Final = pa.schema([("customer", pa.string()), ("country", pa.string()), ("tier", pa.int32())])


def tables() -> dict[str, pa.Table]:
    """All inputs, by name. The same at every call."""
    rng = random.Random(20260301)
    return {
        "events": pa.Table.from_pylist([_event(rng, number) for number in range(80)], schema=EVENTS),
        "orders": pa.Table.from_pylist([_order(rng, number) for number in range(40)], schema=ORDERS),
        "payments": pa.Table.from_pylist([_payment(rng, number) for number in range(36)], schema=PAYMENTS),
        "impressions": pa.Table.from_pylist([_impression(rng, number) for number in range(40)], schema=IMPRESSIONS),
        "clicks": pa.Table.from_pylist([_click(rng, number) for number in range(40)], schema=CLICKS),
        "devices": pa.Table.from_pylist(_DEVICES, schema=DEVICES),
        "customers": pa.Table.from_pylist(_CUSTOMERS, schema=CUSTOMERS),
    }


_DEVICES: Final = [
    {"device": f"d{k}", "owner": owner, "top": top, "since": date(2024, k, 11)}
    for k, owner, top in ((1, "ana", 20.0), (2, "bo", 25.5), (3, None, 30.0), (7, "cy", None))
]
_CUSTOMERS: Final = [
    {"customer": f"c{k}", "country": country, "tier": k % 3} for k, country in ((0, "DE"), (1, "FR"), (2, "DE"), (9, "SE"))
]


def _at(rng: random.Random, number: int, step_s: float) -> datetime:
    """Of row `number`: later and later, but for up to DISORDER_S."""
    behind = rng.choice((0, 0, 0, 1, 2, 5, DISORDER_S - 1))
    return BEGIN + timedelta(seconds=max(0.0, number * step_s - behind), microseconds=rng.choice((0, 0, 250_000, 999_999)))


def _maybe(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.1 else value


def _event(rng: random.Random, number: int) -> dict[str, Any]:
    kind = rng.choice(("temp", "hum", "door", "temp"))
    level = _maybe(rng, rng.randrange(-3, 12))
    reading = _maybe(rng, rng.choice((0.0, -1.5, 21.25, 22.5, 19.125, 30.0625, 7.0)) + rng.randrange(4))
    tags = [_maybe(rng, rng.choice(("red", "blue", "Green", "", "x y"))) for _ in range(rng.randrange(5))]
    marks = [_maybe(rng, rng.randrange(-2, 9)) for _ in range(rng.randrange(6))]
    parts = [
        {"sku": f"s{rng.randrange(4)}", "qty": _maybe(rng, rng.randrange(1, 6)), "price": rng.randrange(1, 40) / 4}
        for _ in range(rng.randrange(4))
    ]
    attrs = [(key, _maybe(rng, rng.choice(("1", "2", "on", "")))) for key in ("a", "b", "zone") if rng.random() < 0.7]
    body = {"user": f"u{rng.randrange(4)}", "n": rng.randrange(9), "deep": {"x": [1, rng.randrange(5)], "ok": rng.random() < 0.5}}
    place = {"city": rng.choice(("Oslo", "Rome", None)), "lat": rng.randrange(-90, 90) / 2, "floor": _maybe(rng, rng.randrange(5))}
    day = date(2026, rng.randrange(1, 13), rng.randrange(1, 28))
    return {
        "id": number if number % 9 else max(number - 1, 0), "ts": _at(rng, number, 1.7), "device": f"d{rng.randrange(1, 5)}", "kind": kind,
        "reading": reading, "level": level, "total": _maybe(rng, rng.randrange(10**6) * 10**6),
        "amount": _maybe(rng, Decimal(rng.randrange(-500, 99_999)) / 100), "day": _maybe(rng, day),
        "label": _maybe(rng, rng.choice(("Alpha one", "beta", " gamma ", "", "DELTA-4", "épée"))),
        "body": _maybe(rng, json.dumps(body, separators=(",", ":"))),
        "line": _maybe(rng, f"k{rng.randrange(3)},{rng.randrange(50)},{rng.randrange(9) / 4}"),
        "made": _maybe(rng, f"{day:%d/%m/%Y} {rng.randrange(24):02}:{rng.randrange(60):02}"),
        "tags": _maybe(rng, tags), "marks": _maybe(rng, marks),
        "place": _maybe(rng, place),
        "attrs": _maybe(rng, attrs), "parts": _maybe(rng, parts), "ok": _maybe(rng, rng.random() < 0.6),
    }  # fmt: skip


def _order(rng: random.Random, number: int) -> dict[str, Any]:
    items = [
        {"sku": f"s{rng.randrange(4)}", "qty": rng.randrange(1, 4), "price": rng.randrange(1, 80) / 8} for _ in range(rng.randrange(1, 4))
    ]
    return {
        "order_id": number, "at": _at(rng, number, 3.1), "customer": f"c{rng.randrange(4)}",
        "price": Decimal(rng.randrange(100, 90_000)) / 100, "count": rng.randrange(1, 9),
        "status": rng.choice(("new", "new", "sent", "void")), "items": items,
    }  # fmt: skip


def _payment(rng: random.Random, number: int) -> dict[str, Any]:
    order = max(0, number + rng.choice((-1, 0, 0, 0, 1)))
    return {
        "payment_id": 1000 + number, "order_id": order, "paid": _at(rng, number, 3.3) + timedelta(seconds=3),
        "sum": Decimal(rng.randrange(100, 90_000)) / 100, "method": rng.choice(("card", "cash", None)),
    }  # fmt: skip


def _impression(rng: random.Random, number: int) -> dict[str, Any]:
    return {"ad": rng.randrange(12), "shown": _at(rng, number, 3.0), "site": rng.choice(("news", "shop")), "cost": rng.randrange(9) / 8}


def _click(rng: random.Random, number: int) -> dict[str, Any]:
    return {"ad": rng.randrange(12), "clicked": _at(rng, number, 3.0) + timedelta(seconds=2), "person": _maybe(rng, f"p{rng.randrange(5)}")}
