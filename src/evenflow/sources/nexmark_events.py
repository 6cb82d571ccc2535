"""The events of an online auction, as in Nexmark: people who register, auctions that they open, bids on them.

Every 50 consecutive events are one person, three auctions and 46 bids, and an event is a function of (seed, event number), so a row can
be made alone, again, and anywhere. Bids and new auctions refer to people and auctions of about the same time; half of the bids go to one
hot auction and three quarters come from one hot bidder. Event numbers are times in which each group of `disorder` events is shuffled.

Source: P. Tucker, K. Tufte, V. Papadimos, D. Maier: NEXMark, a benchmark for queries over data streams (2008), with the proportions, the
hot ratios and the columns that Apache Beam and Flink use. The random numbers are our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from evenflow.sources.generator import GOLDEN, mix, random_bits, stream_of
from evenflow.stream.arrays import Int64s, arrow_of

StreamName = Literal["person", "auction", "bid"]
STREAMS: Final[tuple[str, ...]] = get_args(StreamName)

GROUP: Final = 50
"""Events after which the proportions repeat: 1 person, 3 auctions, 46 bids."""
SHARES: Final = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
"""First place of the stream in a group, and how many it has."""

FIRST_PERSON: Final = 1000
FIRST_AUCTION: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
ACTIVE_PEOPLE: Final = 1000
OPEN_AUCTIONS: Final = 100
PERSON_LEAD: Final = 10
AUCTION_LEAD: Final = 10
"""Bids and auctions may come before what they refer to, by so many ids."""
HOT_IDS: Final = 100
"""The hot one changes with every so many ids."""
HOT_AUCTION, HOT_BIDDER, HOT_SELLER, HOT_CHANNEL = 2, 4, 4, 2
"""1 in so many is not the hot one."""
DISORDER_STEP: Final = 953
"""A prime: number n of a group goes to place n * 953 modulo the group's size."""

STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
FIRST_NAMES: Final = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES: Final = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000

TIME: Final = pa.timestamp("us")
SCHEMAS: Final = {
    "person": pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("emailAddress", pa.string()), ("creditCard", pa.string()), ("city", pa.string()),
         ("state", pa.string()), ("dateTime", TIME), ("extra", pa.string())]
    ),
    "auction": pa.schema(
        [("id", pa.int64()), ("itemName", pa.string()), ("description", pa.string()), ("initialBid", pa.int64()),
         ("reserve", pa.int64()), ("dateTime", TIME), ("expires", TIME), ("seller", pa.int64()), ("category", pa.int64()),
         ("extra", pa.string())]
    ),
    "bid": pa.schema(
        [("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("channel", pa.string()), ("url", pa.string()),
         ("dateTime", TIME), ("extra", pa.string())]
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clock:
    """When events happen. start_us: event time of number 0, microseconds since 1970. rate: events per second of event time.

    disorder: events in a group whose times are shuffled; 1: none.
    """

    start_us: int
    rate: int
    disorder: int = 1

    def times(self, numbers: Int64s) -> Int64s:
        """Event times, microseconds since 1970."""
        group, place = numbers // self.disorder, numbers % self.disorder
        return self.start_us + self._span(group * self.disorder + place * DISORDER_STEP % self.disorder)

    def _span(self, numbers: Int64s) -> Int64s:
        whole, rest = numbers // self.rate, numbers % self.rate
        return whole * 1_000_000 + rest * 1_000_000 // self.rate

    @property
    def delay_us(self) -> int:
        """The longest time by which an event comes behind one with a later time: what a watermark has to wait."""
        return self.disorder * 1_000_000 // self.rate + 1 if self.disorder > 1 else 0


def rows_of(stream: str, events: int) -> int:
    """How many of the first `events` events belong to the stream."""
    first, share = SHARES[stream]
    whole, rest = divmod(events, GROUP)
    return whole * share + min(max(rest - first, 0), share)


def numbers_of(stream: str, rows: Int64s) -> Int64s:
    """Event numbers of the stream's rows."""
    first, share = SHARES[stream]
    return rows // share * GROUP + first + rows % share


class Draws:
    """Random numbers of events: a new column with every call, each a function of (seed, column, event number)."""

    def __init__(self, seed: int, stream: str, numbers: Int64s) -> None:
        self._seed, self._column = seed, 1000 * (1 + STREAMS.index(stream))
        self._steps = numbers.astype(np.uint64) * np.uint64(GOLDEN)

    def below(self, count: int | Int64s) -> Int64s:
        """Whole numbers 0 .. count - 1; count: one for all or one each, 1 .. 2^31."""
        return ((self._bits() >> np.uint64(33)).view(np.int64) * count) >> 31

    def price(self) -> Int64s:
        """100 * 10^(6u), u uniform in [0, 1): most are small, few are huge."""
        uniform = (self._bits() >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # Whole cents: the last bit of a power may differ between machines, and next to no power lies so close to a whole number.
        return np.floor(10.0 ** (uniform * 6.0) * 100.0 + 0.5).astype(np.int64)

    def _bits(self) -> npt.NDArray[np.uint64]:
        self._column += 1
        return mix(self._steps + np.uint64(stream_of(self._seed, 0, self._column)))


def make_events(stream: str, seed: int, numbers: Int64s, clock: Clock) -> pa.RecordBatch:
    """The events of these numbers, all of them of that stream. numbers: int64, shape (n,). Cost: about 150 ns a row."""
    draws = Draws(seed, stream, numbers)
    columns = {"person": _people, "auction": _auctions, "bid": _bids}[stream](draws, numbers, clock)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[stream])


def _people(draws: Draws, numbers: Int64s, clock: Clock) -> list[pa.Array]:
    texts = _texts()
    return [
        _int(_last_person(numbers) + FIRST_PERSON),
        _pick(texts.names, draws),
        _pick(texts.emails, draws),
        _pick(texts.cards, draws),
        _pick(pa.array(CITIES), draws),
        _pick(pa.array(STATES), draws),
        arrow_of(clock.times(numbers), TIME),
        _pick(texts.person_extra, draws),
    ]


def _auctions(draws: Draws, numbers: Int64s, clock: Clock) -> list[pa.Array]:
    texts = _texts()
    times, initial = clock.times(numbers), draws.price()
    people = _last_person(numbers)
    hot = draws.below(HOT_SELLER) > 0
    seller = np.where(hot, people // HOT_IDS * HOT_IDS, _active_person(draws, people)) + FIRST_PERSON
    # As long as it takes until about OPEN_AUCTIONS others are open.
    horizon_us = max(OPEN_AUCTIONS * GROUP // SHARES["auction"][1] * 1_000_000 // clock.rate, 1)
    lasts = 1000 * (1 + draws.below(max(2 * horizon_us // 1000, 1)))
    return [
        _int(_last_auction(numbers) + FIRST_AUCTION),
        _pick(texts.items, draws),
        _pick(texts.descriptions, draws),
        _int(initial),
        _int(initial + draws.price()),
        arrow_of(times, TIME),
        arrow_of(times + lasts, TIME),
        _int(seller),
        _int(FIRST_CATEGORY + draws.below(CATEGORIES)),
        _pick(texts.auction_extra, draws),
    ]


def _bids(draws: Draws, numbers: Int64s, clock: Clock) -> list[pa.Array]:
    texts = _texts()
    auctions, people = _last_auction(numbers), _last_person(numbers)
    least = np.maximum(auctions - OPEN_AUCTIONS, 0)
    cold = least + draws.below(auctions - least + 1 + AUCTION_LEAD)
    auction = np.where(draws.below(HOT_AUCTION) > 0, auctions // HOT_IDS * HOT_IDS, cold) + FIRST_AUCTION
    hot = draws.below(HOT_BIDDER) > 0
    bidder = np.where(hot, people // HOT_IDS * HOT_IDS + 1, _active_person(draws, people)) + FIRST_PERSON
    hot_channel = draws.below(len(HOT_CHANNELS))
    cold_channel = len(HOT_CHANNELS) + draws.below(CHANNELS)
    channel = pa.array(np.where(draws.below(HOT_CHANNEL) > 0, hot_channel, cold_channel))
    return [
        _int(auction),
        _int(bidder),
        _int(draws.price()),
        texts.channels.take(channel),
        texts.urls.take(channel),
        arrow_of(clock.times(numbers), TIME),
        _pick(texts.bid_extra, draws),
    ]


def _last_person(numbers: Int64s) -> Int64s:
    """Index of the newest person at that event."""
    return numbers // GROUP


def _last_auction(numbers: Int64s) -> Int64s:
    """Index of the newest auction at that event; the first group's person comes before any auction and counts as the first's."""
    first, share = SHARES["auction"]
    return np.maximum(numbers // GROUP * share + np.minimum(numbers % GROUP - first, share - 1), 0)


def _active_person(draws: Draws, people: Int64s) -> Int64s:
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + draws.below(active + PERSON_LEAD)


def _int(values: Int64s) -> pa.Array:
    return arrow_of(np.ascontiguousarray(values, dtype=np.int64), pa.int64())


def _pick(values: pa.Array, draws: Draws) -> pa.Array:
    return values.take(pa.array(draws.below(len(values))))


# ---------------------------------------------------------------- texts


@dataclass(frozen=True, slots=True)
class Texts:
    """What the text columns are drawn from: the same for every seed. Sizes are such that a person has about 200 bytes and an auction
    500, as Nexmark has it, and a bid 150, which its channel and url take."""

    names: pa.Array
    emails: pa.Array
    cards: pa.Array
    items: pa.Array
    descriptions: pa.Array
    channels: pa.Array
    urls: pa.Array
    person_extra: pa.Array
    auction_extra: pa.Array
    bid_extra: pa.Array


@lru_cache(maxsize=1)
def _texts() -> Texts:
    cards = random_bits(stream_of(0, 0, 1), 0, 4096).tolist()
    cold = [f"channel-{i}" for i in range(CHANNELS)]
    count = len(HOT_CHANNELS) + CHANNELS
    paths = ["/".join(words) for words in zip(*(_words(column, count, 4, 5) for column in (8, 9, 10)), strict=True)]
    urls = [f"https://www.nexmark.com/{path}/item.htm?query=1" for path in paths]
    return Texts(
        names=pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]),
        emails=pa.array([f"{word}@{word[::-1]}.com" for word in _words(2, 1024, 4, 10)]),
        cards=pa.array([" ".join(f"{bits >> 16 * part & 0xFFFF:05d}"[1:] for part in range(4)) for bits in cards]),
        items=pa.array(_words(3, 1024, 10, 20)),
        descriptions=pa.array(_words(4, 1024, 60, 100)),
        channels=pa.array([*HOT_CHANNELS, *cold]),
        # Only those of cold channels have a number, and one in ten of them has none either.
        urls=pa.array([url if i < len(HOT_CHANNELS) or i % 10 == 0 else f"{url}&channel_id={i - 4}" for i, url in enumerate(urls)]),
        person_extra=pa.array(_words(5, 1024, 80, 120)),
        auction_extra=pa.array(_words(6, 1024, 280, 360)),
        bid_extra=pa.array(_words(7, 1024, 20, 40)),
    )


def _words(column: int, count: int, least: int, most: int) -> list[str]:
    """Made-up words of `least` .. `most` letters."""
    bits = random_bits(stream_of(0, 1, column), 0, count * (most + 1))
    letters = (bits % np.uint64(26)).astype(np.uint8) + np.uint8(ord("a"))
    lengths = (bits[:: most + 1] >> np.uint64(32)) % np.uint64(most - least + 1) + np.uint64(least)
    text = letters.tobytes().decode()
    return [text[i * (most + 1) : i * (most + 1) + int(length)] for i, length in enumerate(lengths)]
