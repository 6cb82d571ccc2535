"""What NumPy frees between two batches stays with a site."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from evenflow.world.spark.executor.heap import SETTINGS

FAULTS = """
import ctypes, resource, sys, threading
import numpy as np
from evenflow.world.spark.executor.heap import keep_freed
if not hasattr(ctypes.CDLL(None), "mallopt"):
    sys.exit(3)
print(keep_freed() if sys.argv[1] == "kept" else False)

def batches(count):
    for _ in range(count):
        columns = [np.ones(1 << 16) for _ in range(8)]

def faults():
    batches(20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batches(100)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

faults()
beside = threading.Thread(target=faults)
beside.start()
beside.join()
"""


def faults(how: str, **said: str) -> list[str]:
    """Whether freed memory is kept, and minor page faults of a hundred batches of 4 MB, in the first thread and in another one."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS} | said
    done = subprocess.run([sys.executable, "-c", FAULTS, how], env=environment, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 3:
        pytest.skip("no C library of GNU's")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_batches_find_the_memory_of_those_before_them() -> None:
    kept, first, beside = faults("kept")
    assert kept == "True" and int(first) < 1_000 and int(beside) < 1_000
    assert int(faults("given back")[1]) > 50_000, "4 MB are a thousand pages: this is what it is for"


def test_who_has_said_how_memory_is_given_back_is_obeyed() -> None:
    assert faults("kept", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"


GIVEN = """
import ctypes, sys
import numpy as np
from evenflow.world.spark.executor.heap import give_back, keep_freed
from evenflow.world.spark.net.vitals import rss_bytes
if not keep_freed():
    sys.exit(3)
kept = []
for _ in range(64):
    drawn = np.ones(1 << 17)
    kept.append(np.ones(1 << 7))
    del drawn
    drawn = [np.ones(1 << 17) for _ in range(32)]
    kept.append(np.ones(1 << 7))
del drawn
before = rss_bytes()
give_back()
print(before - rss_bytes())
"""


def test_what_a_beginning_has_freed_is_given_back() -> None:
    """Method: a site keeps what is freed, 32 MB here; small blocks that stay lie behind them, so that they are not at the heap's end."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    done = subprocess.run([sys.executable, "-c", GIVEN], env=environment, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 3:
        pytest.skip("no C library of GNU's")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 16 << 20
