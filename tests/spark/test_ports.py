"""Where processes of an engine listen: within a range, one after the other, and at an address in a network."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from evenflow.errors import ClusterError, OptionError, PortsTaken
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.options import EngineOptions
from evenflow.world.spark.executor.site_task import SiteConfig, address_in, listens_at, open_site_port
from evenflow.world.spark.net.listener import open_port

HOST = "127.0.0.1"


def free_range(many: int) -> tuple[int, int]:
    """Ports that nobody has at the moment, below those that the system gives away."""
    for first in range(21_000, 31_000, many):
        with ExitStack() as held:
            try:
                for port in range(first, first + many):
                    held.enter_context(socket.create_server((HOST, port)))
            except OSError:
                continue
            return first, first + many - 1
    raise AssertionError("no ports are free")


def test_a_second_site_on_a_machine_takes_the_next_port_and_one_too_many_is_told_so() -> None:
    first, last = free_range(3)
    with ExitStack() as held:
        ports = [held.enter_context(open_port(HOST, (first, last))).getsockname()[1] for _ in range(3)]
        assert ports == [first, first + 1, last]
        with pytest.raises(PortsTaken, match=f"all ports from {first} to {last} are taken on .*option ports"):
            open_port(HOST, (first, last))
    open_port(HOST, (first, last)).close()


def test_a_site_and_its_driver_share_a_range() -> None:
    first, last = free_range(2)
    driver = DriverLoop("engine", 1, b"s" * 32, HOST, ports=(first, last))
    try:
        assert driver.port == first
        config = SiteConfig("engine", (HOST, first), 1, 10.0, None, b"s" * 32, (first, last))
        with open_site_port(config) as port:
            assert port.getsockname() == (HOST, last)
            with pytest.raises(PortsTaken):
                open_site_port(config)
    finally:
        driver.close()


def test_what_is_wrong_with_an_address_is_not_taken_for_a_full_range() -> None:
    with pytest.raises(OSError, match="assign"):
        open_port("192.0.2.1", (40_000, 40_001))


def test_an_address_in_a_network_is_found_and_told() -> None:
    assert address_in("127.0.0.0/8") == HOST
    config = SiteConfig("engine", ("192.0.2.1", 4000), 1, 10.0, "127.0.0.0/8", b"s" * 32)
    with open_site_port(config) as port:
        assert listens_at(config, port) == HOST
    everywhere = SiteConfig("engine", (HOST, 4000), 1, 10.0, "0.0.0.0", b"s" * 32)
    with open_site_port(everywhere) as port:
        assert listens_at(everywhere, port) is None


@pytest.mark.parametrize("network", ["198.51.100.0/24", "10.0.0.0/99", "no/thing"])
def test_a_network_in_which_a_machine_has_no_address_is_an_error_that_names_the_option(network: str) -> None:
    with pytest.raises(ClusterError, match=f"cannot listen at {network}.*`bind`"):
        open_site_port(SiteConfig("engine", (HOST, 4000), 1, 10.0, network, b"s" * 32))


@pytest.mark.parametrize(("given", "kept"), [("4000-4001", (4000, 4001)), ("4000", (4000, 4000)), (4000, (4000, 4000)), ((1, 2), (1, 2))])
def test_a_range_may_be_written_in_several_ways(given: object, kept: tuple[int, int]) -> None:
    options = {"ports": given}
    assert EngineOptions(**options).ports == kept  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["", "a-b", "4001-4000", "0-5", "1-70000", "1-2-3", True, 1.5, [], {}])
def test_what_is_no_range_is_refused(given: object) -> None:
    options = {"ports": given}
    with pytest.raises(OptionError, match="ports is .*'40000-40099'"):
        EngineOptions(**options)  # type: ignore[arg-type]
