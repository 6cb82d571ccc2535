"""How alike two texts are: `levenshtein`, `jaro_winkler_similarity`, and `soundex`, which is how an English name sounds."""

from __future__ import annotations

from typing import Final

from evenflow.query.sql.arguments import a_string, an_int
from evenflow.query.sql.node import Node, rowwise
from evenflow.query.sql.signature import Signature
from evenflow.query.sql.types import DOUBLE, INT, STRING


def _levenshtein(a: Node, b: Node, most: Node | None = None) -> Node:
    """With a limit, -1 for what is further apart; a limit of null is 0, as in Spark."""
    nodes = [a_string(a, "levenshtein"), a_string(b, "levenshtein")]
    if most is None:
        return rowwise(_distance, INT, *nodes)
    limited = lambda x, y, n: None if x is None or y is None else _distance(x, y, n or 0)  # noqa: E731
    return rowwise(limited, INT, *nodes, an_int(most, "levenshtein"), nulls=True)


def _distance(a: str, b: str, most: int | None = None) -> int:
    row = list(range(len(b) + 1))
    for at, letter in enumerate(a, 1):
        before, row[0] = row[0], at
        for place, other in enumerate(b, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != other))
    return row[-1] if most is None or row[-1] <= most else -1


_SOUNDS: Final = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))


def _soundex(text: str) -> str:
    """As Spark: what does not begin with a letter of English stays as it is."""
    first = text[:1].upper()
    if len(text[:1].encode()) != 1 or first not in _SOUNDS:
        return text
    found, last = first, _SOUNDS[first]
    for letter in text[1:]:
        code = _SOUNDS.get(letter.upper() if letter.isascii() else "")
        if code is None:
            last = "0"
            continue
        if code == "7":
            continue
        if code not in ("0", last):
            found += code
        last = code
        if len(found) > 3:
            break
    return found.ljust(4, "0")


_MOST_PREFIX: Final = 4
_WEIGHT: Final = 0.1


def _jaro_winkler(a: str, b: str) -> float:
    """Jaro's measure, and more where both begin alike."""
    if a == b:
        return 1.0
    reach = max(max(len(a), len(b)) // 2 - 1, 0)
    taken, met = [False] * len(b), list[str]()
    for at, letter in enumerate(a):
        for place in range(max(at - reach, 0), min(at + reach + 1, len(b))):
            if not taken[place] and b[place] == letter:
                taken[place] = True
                met.append(letter)
                break
    if not met:
        return 0.0
    other = [letter for letter, used in zip(b, taken, strict=True) if used]
    moved = sum(x != y for x, y in zip(met, other, strict=True)) // 2
    count = len(met)
    jaro = (count / len(a) + count / len(b) + (count - moved) / count) / 3
    prefix = 0
    while prefix < min(len(a), len(b), _MOST_PREFIX) and a[prefix] == b[prefix]:
        prefix += 1
    return jaro + prefix * _WEIGHT * (1.0 - jaro)


FUNCTIONS: Final = {
    "levenshtein": Signature(_levenshtein, 2, 3),
    "soundex": Signature(lambda a: rowwise(_soundex, STRING, a_string(a, "soundex")), 1, 1),
    "jaro_winkler_similarity": Signature(
        lambda a, b: rowwise(_jaro_winkler, DOUBLE, *(a_string(each, "jaro_winkler_similarity") for each in (a, b))), 2, 2
    ),
}
