"""`evenflow policy shedding FILE`: what would be left out under an overload that is written down. Nothing is started."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenflow.cli.output import OK, Output
from evenflow.errors import PolicyError

if TYPE_CHECKING:
    from evenflow.policy.shedding.alternatives import Alternative
    from evenflow.policy.shedding.flow import Shedding
    from evenflow.policy.shedding.serial import Overload

NAME: Final = "shedding"
"""In the place of a balancing policy's name."""
LARGEST_DENOMINATOR: Final = 60


def shed(output: Output, file: Path, text: str) -> int:
    """Solve the flow problem of an overload, and show it beside the alternatives that the file names, and letting everything in."""
    from evenflow.policy.shedding.alternatives import alternative
    from evenflow.policy.shedding.flow import solve
    from evenflow.policy.shedding.serial import overload_from_json

    try:
        overload = overload_from_json(text)
        plan = solve(overload.network, overload.rates, headroom=overload.headroom)
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
    assert plan is not None, "without a limit of time the program is always solved"
    tried = [alternative(overload.network, rates) for rates in overload.alternatives]
    best = {name: _let_in(overload, plan, name) for name in overload.network.sources}
    if overload.alternatives:
        tried.append(alternative(overload.network, best))
    output.report(_object(overload, plan, best, tried))
    if not output.as_json:
        _print(output, overload, plan, best, tried)
    return OK


def _let_in(overload: Overload, plan: Shedding, source: str) -> float:
    """Rows per second that some reader of a source wants: one row may go to several."""
    return max((sum(plan.kept[arc.name]) for arc in overload.network.arcs if arc.up == source), default=0.0)


def _object(overload: Overload, plan: Shedding, best: dict[str, float], tried: list[Alternative]) -> dict[str, Any]:
    names = overload.sites
    return {
        "policy": NAME,
        "how": plan.how,
        "let_in": best,
        "keeps": {arc: list(keeps) for arc, keeps in plan.keeps.items()},
        "delivered": dict(plan.delivered),
        "utility": dict(plan.utility),
        "worth": plan.worth,
        "loads": {names[site]: load for site, load in plan.loads.items()},
        "over": {names[site]: load for site, load in plan.over.items()},
        "alternatives": [
            {
                "let_in": dict(each.rates),
                "loads": {names[site]: load for site, load in each.loads.items()},
                "throughput": {names[site]: dict(rates) for site, rates in each.throughput.items()},
                "feasible": each.feasible,
            }
            for each in tried
        ],
    }


def _print(output: Output, overload: Overload, plan: Shedding, best: dict[str, float], tried: list[Alternative]) -> None:
    from rich import box
    from rich.table import Table

    output.out.print(overload.about or "what to leave out", highlight=False)
    if tried:
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("plan")
        table.add_column(f"let in ({', '.join(overload.network.sources)})")
        for name in overload.sites:
            table.add_column(f"{name} load", justify="right")
            table.add_column(f"{name} throughput")
        table.add_column("fits")
        for number, each in enumerate(tried):
            cells = [str(number) if number < len(tried) - 1 else "best", _several(each.rates.get(name, 0.0) for name in best)]
            for site in range(len(overload.sites)):
                cells += [shown(each.loads[site]), _several(each.throughput[site].values())]
            table.add_row(*cells, "yes" if each.feasible else "no")
        output.out.print(table)
    words = {
        "all": "nothing need be left out",
        "plan": "the best plan",
        "over": "too much, even without all that may be left out",
    }
    output.out.print(f"{words[plan.how]}: let in ({_several(best.values())})", highlight=False)
    for name, share in plan.delivered.items():
        output.out.print(f"{name}: {share:.1%} delivered, utility {plan.utility[name]:.3g}", highlight=False)
    for arc, keeps in plan.keeps.items():
        if min(keeps) < 1:
            output.out.print(f"keep {_several(keeps)} of what comes on {arc}", highlight=False)
    for site, load in plan.over.items():
        output.out.print(f"site {overload.sites[site]} has {load:.3g} s a second too much to do", highlight=False)


def _several(numbers: Any) -> str:
    return ", ".join(map(shown, numbers))


def shown(number: float) -> str:
    """As a fraction where it is one of small numbers, as the paper writes it: 1/5."""
    near = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    return str(near) if abs(number - near) < 1e-6 else f"{number:.4g}"
