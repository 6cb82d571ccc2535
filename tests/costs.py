"""What each test costs, as processor time: on a machine that others use, the clock on the wall says who else was there.

`COSTS=/tmp/costs .venv/bin/python -m pytest -p tests.costs ...` writes a file per worker, and `python -m tests.costs /tmp/costs` says what
costs most: seconds of the process and of the children that it has waited for, by folder, by file and by test. A cluster or a server that
lives on is in the figures of the test at whose end it is left.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

SHOWN: Final = 60


def used_s() -> tuple[float, float]:
    """Of this process and of its children that have ended."""
    own, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, theirs.ru_utime + theirs.ru_stime


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before, since_s = used_s(), time.monotonic()
    try:
        return (yield)
    finally:
        own, theirs = (now - then for now, then in zip(used_s(), before, strict=True))
        with open(f"{os.environ['COSTS']}.{os.environ.get('PYTEST_XDIST_WORKER', 'main')}", "a") as found:
            found.write(f"{own:.3f}\t{theirs:.3f}\t{time.monotonic() - since_s:.3f}\t{item.nodeid}\n")


def main(written: str) -> None:
    by_folder: defaultdict[str, float] = defaultdict(float)
    by_file: defaultdict[str, float] = defaultdict(float)
    tests: list[tuple[float, float, str]] = []
    for file in sorted(Path(written).parent.glob(f"{Path(written).name}.*")):
        for line in file.read_text().splitlines():
            own, theirs, wall, test = line.split("\t")
            cpu, path = float(own) + float(theirs), test.partition("::")[0]
            by_folder[path.rpartition("/")[0]] += cpu
            by_file[path] += cpu
            tests.append((cpu, float(wall), test))
    print(f"{sum(cpu for cpu, _, _ in tests):.0f} s in {len(tests)} tests")
    for found in (by_folder, by_file):
        dearest = sorted(found.items(), key=lambda each: -each[1])[:SHOWN]
        print("\n" + "\n".join(f"{cpu:8.1f}  {name}" for name, cpu in dearest))
    print("\n" + "\n".join(f"{cpu:8.1f}  {test} ({wall:.1f} s on the wall)" for cpu, wall, test in sorted(tests, reverse=True)[:SHOWN]))


if __name__ == "__main__":
    main(sys.argv[1])
