"""A hosting as JSON, for policies that are run alone on recorded statistics; and a proposal as an object.

    {"replicas": {"1": [[0, 2], [1, 3]]}, "capacity": {"0": 1.0, "1": 1.0}, "pinned": [[1, 0]], "hosts": {"0": "a"}, "on_disk": [[0, 1, 0]]}

replicas: by segment, a list of partitions, each a list of its sites by rank. on_disk: site, segment, partition. All but replicas may be
missing; without capacity, every site that hosts something may be given more.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from evenflow.errors import PolicyError
from evenflow.policy.hosting import Hosting
from evenflow.policy.proposal import Proposal

KEYS: Final = ("replicas", "capacity", "pinned", "hosts", "on_disk")
DIGITS: Final = 18
"""At most, of the number of a segment or a site."""


def hosting_from_json(text: str) -> Hosting:
    """Raises PolicyError saying what is missing or wrong."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"the hosting is no JSON ({error}); docs/policies.md shows the form") from None
    if not isinstance(data, dict) or "replicas" not in data or set(data) - set(KEYS):
        raise PolicyError(f"a hosting is an object with replicas and perhaps {', '.join(KEYS[1:])}, not {text.strip()!r:.80}")
    replicas = {
        (segment, partition): _whole(sites, f"replicas of segment {segment}, partition {partition}")
        for segment, row in _by_number(data["replicas"], "replicas").items()
        for partition, sites in enumerate(_list(row, f"replicas of segment {segment}"))
    }
    for (segment, partition), sites in replicas.items():
        if len(set(sites)) != len(sites):
            raise PolicyError(f"partition {partition} of segment {segment} has two replicas on one site: {list(sites)}")
    hosting_sites = {site for sites in replicas.values() for site in sites}
    capacity = _by_number(data["capacity"], "capacity") if "capacity" in data else dict.fromkeys(sorted(hosting_sites), 1.0)
    for site, share in capacity.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise PolicyError(
                f"capacity of site {site} is a share of its time in (0, 1], not {share!r:.40}; leave it out if it gets nothing"
            )
    hosts = _by_number(data.get("hosts", {}), "hosts")
    if not all(isinstance(host, str) for host in hosts.values()):
        raise PolicyError("hosts are names of machines by site")
    pinned = {_whole(each, "each of pinned", 2) for each in _list(data.get("pinned", []), "pinned")}
    on_disk = {_whole(each, "each of on_disk", 3) for each in _list(data.get("on_disk", []), "on_disk")}
    return Hosting(replicas, capacity, frozenset((s, p) for s, p in pinned), hosts, frozenset((at, s, p) for at, s, p in on_disk))


def proposal_to_json(proposal: Proposal) -> dict[str, Any]:
    """moves, next_delta_us, imbalance, text; not what the policy remembers."""
    return {
        "moves": [asdict(move) for move in proposal.moves],
        "next_delta_us": proposal.next_delta_us,
        "imbalance": proposal.imbalance,
        "text": proposal.text,
    }


def _by_number(data: Any, at: str) -> dict[int, Any]:
    if not isinstance(data, dict) or not all(key.isdecimal() and len(key) <= DIGITS for key in data):
        raise PolicyError(f"{at} is an object with numbers for keys, not {data!r:.60}")
    return {int(key): value for key, value in data.items()}


def _list(data: Any, at: str) -> list[Any]:
    if not isinstance(data, list):
        raise PolicyError(f"{at} must be a list, not {data!r:.60}")
    return data


def _whole(data: Any, at: str, length: int | None = None) -> tuple[int, ...]:
    numbers = _list(data, at)
    if (length is not None and len(numbers) != length) or not all(type(each) is int and each >= 0 for each in numbers):
        raise PolicyError(f"{at} must be a list of {length or 'whole'} numbers >= 0, not {data!r:.60}")
    return tuple(numbers)
