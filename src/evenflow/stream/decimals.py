"""Decimals as results: rounded as Spark rounds them, and no more digits than their type has."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

from evenflow.errors import ArithmeticOverflow

MOST: Final = 38
"""Digits of a decimal."""
EXACT: Final = Context(prec=120, Emax=10**6, Emin=-(10**6))
"""For results before they are rounded."""


def fitted(value: Decimal, type_: Any) -> Decimal:
    """A result rounded to its type, halves away from zero. ArithmeticOverflow if it has too many digits."""
    try:
        made = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, EXACT)
    except InvalidOperation:
        made = None
    if made is None or made.copy_abs() >= Decimal(10) ** (type_.precision - type_.scale):
        kind = f"decimal({type_.precision},{type_.scale})"
        raise ArithmeticOverflow(f"{value:.40g} has more digits than {kind}; cast an operand to fewer digits or to double")
    return made


__all__ = ["EXACT", "MOST", "fitted"]
