"""A process that has as many files open as it may: its port waits, says so now and then, and takes connections again later."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from evenflow.world.spark.net.handshake import dial

SECRET = b"s" * 32
CHILD = """
import logging, os, resource, sys, time
from evenflow.world.spark.net.listener import Dialer, Listener, open_port
from evenflow.world.spark.net.reactor import Reactor

warnings = []
logging.getLogger("evenflow").addHandler(logging.Handler())
logging.getLogger("evenflow").handlers[0].emit = lambda record: warnings.append((time.monotonic(), record.getMessage()))
reactor, known = Reactor(), []
made = Listener(open_port("127.0.0.1"), reactor, b"s" * 32, lambda connection, hello: known.append(connection))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
hoard = []
try:
    while True:
        hoard.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
failed = []
Dialer(("127.0.0.1", 1), reactor, b"s" * 32, {}, known.append, failed.append)
print(made.port, flush=True)

def turn(until):
    turns = 0
    while not until():
        reactor.poll(0.05)
        turns += 1
    return turns

turn(lambda: warnings)
begun, cpu = time.monotonic(), time.process_time()
turns = turn(lambda: time.monotonic() > begun + 2.5)
print(turns, time.process_time() - cpu, len(warnings), flush=True)
print(warnings[0][1], flush=True)
print(failed, flush=True)
for fd in hoard:
    os.close(fd)
turn(lambda: known)
print("known", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.timeout(60)
def test_at_the_limit_of_open_files_a_port_waits_and_recovers(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    port = int(child.stdout.readline())
    # The system completes the connection; the handshake waits until somebody can accept it.
    with dial(("127.0.0.1", port), SECRET, {"as": "test"}, timeout_s=40):
        turns, cpu_s, warnings = child.stdout.readline().split()
        assert int(turns) < 200 and float(cpu_s) < 0.5, "it does not spin"
        assert 1 <= int(warnings) <= 4, "it says so once a second"
        assert "ulimit -n" in child.stdout.readline()
        assert "Too many open files" in child.stdout.readline(), "who dials hears of it like of any other failure"
        assert child.stdout.readline() == "known\n"
