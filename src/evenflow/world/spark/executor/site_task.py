"""What a Spark task does to become a site."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import signal
import socket
import sys
import uuid
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from evenflow.errors import ClusterError
from evenflow.world.spark.executor.heap import keep_freed
from evenflow.world.spark.executor.requirements import versions
from evenflow.world.spark.net import control
from evenflow.world.spark.net.connection import Connection
from evenflow.world.spark.net.handshake import HANDSHAKE_TIMEOUT_S, Hello, dial
from evenflow.world.spark.net.listener import open_port
from evenflow.world.spark.net.names import family_of, resolve
from evenflow.world.spark.net.priority import SERVING, weighed
from evenflow.world.spark.net.tls import check
from evenflow.world.spark.net.trust import Trusted, trust_in

WARM: Final = (
    "evenflow.operator.catalogue",
    "evenflow.query.expression",
    "evenflow.sources",
    "evenflow.sinks",
    "evenflow.site.machine",
)
"""Imported before the hello, so that what loads for longest (the parser of expressions, and what Arrow looks for when it makes its first
array) does not while peers wait to hear from the site."""
PR_SET_PDEATHSIG: Final = 1
"""From linux/prctl.h."""


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """engine: its id. address: where the driver listens. job: which start of a site this is. bind: the address at which
    the site shall listen, or the network in which it has one; None: the one by which the driver knows it. ports: the first and the last at
    which it may. secret: kept out of every text that Spark may show.
    """

    engine: str
    address: tuple[str, int]
    job: int
    lease_s: float
    bind: str | None
    secret: Trusted = field(repr=False)
    ports: tuple[int, int] | None = None


def run_site(config: SiteConfig) -> tuple[str, bool]:
    """Be a site, the one that the driver says, until there is a reason to leave. Returns it, and whether another executor may do (see
    `control.Leave`). Raises if the driver cannot be reached."""
    executor, identity, host = find_executor()
    keep_freed()
    prepare_kernels(config, executor, host)
    from evenflow.world.spark.executor.site import Site

    for module in WARM:
        import_module(module)
    incarnation = uuid.uuid4().hex
    port = open_site_port(config)
    check_certificate(config, port)
    attempt = task_attempt()
    hello: Hello = {
        "as": "site", "engine": config.engine, "job": config.job, "incarnation": incarnation, "executor": executor, "identity": identity,
        "host": host, "pid": os.getpid(), "port": port.getsockname()[1], "attempt": attempt,
        "listens": listens_at(config, port), "versions": versions(),
    }  # fmt: skip
    driver = dial(config.address, config.secret, hello)
    driver.settimeout(HANDSHAKE_TIMEOUT_S)
    you = control.from_driver(driver.receive()[1])
    if not isinstance(you, control.You):
        driver.close()
        return (you.why, you.again) if isinstance(you, control.Leave) else (f"failed: the driver said {you!r}", False)
    switch_interval = sys.getswitchinterval()
    # The driver decides when a site ends; an interrupt meant for a terminal's foreground processes does not.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    site = Site(you, hello, config.secret, config.address, driver, port, config.lease_s)
    hang_up = signal.signal(signal.SIGHUP, lambda number, frame: site.hang_up())
    die_with_parent()
    try:
        with weighed(SERVING):
            why = site.serve()
    finally:
        sys.setswitchinterval(switch_interval)
        signal.signal(signal.SIGHUP, hang_up)
        signal.signal(signal.SIGINT, interrupt)
    if site.stuck:
        # Spark would give this process to its next task, with user code still running in it.
        os._exit(0)
    return why, False


def open_site_port(config: SiteConfig) -> socket.socket:
    """Where the site listens. Peers and Spark's tasks are told the address from which it reaches the driver, so there is no other one
    at which it would have to. Raises ClusterError."""
    host = config.bind
    try:
        if host is None:
            host = source_address(config.address)
        elif "/" in host:
            host = address_in(host)
        return open_port(host, config.ports)
    except OSError as error:
        raise ClusterError(f"a site cannot listen at {host or 'its own address'} ({error}): set the engine's option `bind`") from error


def listens_at(config: SiteConfig, port: socket.socket) -> str | None:
    """The address to be told to the others; None: that by which the driver knows it."""
    address = str(port.getsockname()[0])
    return None if config.bind is None or ipaddress.ip_address(address).is_unspecified else address


def check_certificate(config: SiteConfig, port: socket.socket) -> None:
    """See that the others will take this machine's certificate. Raises TlsRefused."""
    tls = trust_in(config.secret).tls
    if tls is not None:
        check(tls, listens_at(config, port) or source_address(config.address))


def address_in(network: str) -> str:
    """This machine's own address in a network such as 10.1.0.0/16. Raises OSError."""
    try:
        wanted = ipaddress.ip_network(network, strict=False)
    except ValueError as error:
        raise OSError(str(error)) from error
    address = source_address((str(wanted[1] if wanted.num_addresses > 1 else wanted[0]), 9))
    if ipaddress.ip_address(address) not in wanted:
        raise OSError(f"{socket.gethostname()} has no address in {network}")
    return address


def source_address(target: tuple[str, int]) -> str:
    """This machine's own address on the way to another one. Nothing is sent. Raises OSError."""
    address = resolve(target[0])
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, target[1]))
        return str(probe.getsockname()[0])


def prepare_kernels(config: SiteConfig, executor: str, host: str) -> None:
    """Compile the kernels if nobody has on this machine, before anything else is imported. It takes half a minute and more, and holds the
    interpreter: the driver is told before, and waits for this site as long as the connection is there."""
    from evenflow.kernels import prepare

    told: list[Connection] = []
    hello: Hello = {"as": "prepares", "engine": config.engine, "executor": executor, "host": host}
    try:
        prepare(lambda: told.append(dial(config.address, config.secret, hello)))
    finally:
        for connection in told:
            connection.close()


def start_site(
    engine: str, host: str, port: int, job: int, lease_s: float, bind: str | None, secret: Trusted, ports: tuple[int, int] | None = None
) -> tuple[str, bool]:
    """`run_site` for plain arguments: what a Spark task calls."""
    return run_site(SiteConfig(engine, (host, port), job, lease_s, bind, secret, ports))


def die_with_parent() -> None:
    """An executor that ends hangs up on its Python processes, and a handler of that signal runs only when the interpreter is free. Linux
    kills whoever is still there when the parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def task_attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


def find_executor() -> tuple[str, str, str]:
    """(executor id, identity of the executor's process on its machine, host), from the command line of this process's ancestors.

    Every cluster manager starts executors with `--executor-id N --hostname H`. Without /proc the id is "?", the identity that of the parent
    process, and the host what the system calls itself.
    """
    pid = os.getpid()
    machine = machine_id()
    for _ in range(6):
        pid = parent_of(pid)
        if pid <= 1:
            break
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            break
        if b"--executor-id" in words:
            executor = words[words.index(b"--executor-id") + 1].decode()
            named = words[words.index(b"--hostname") + 1].decode() if b"--hostname" in words else socket.gethostname()
            return executor, f"{machine}/{pid}", named
        if any(word.endswith(b"SparkSubmit") for word in words):
            return "driver", f"{machine}/{pid}", socket.gethostname()
    return "?", f"{machine}/{os.getppid()}", socket.gethostname()


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def machine_id() -> str:
    """The same for all processes of a machine (or container), different for different ones."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"
