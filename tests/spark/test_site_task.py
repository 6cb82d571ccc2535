"""Where a site listens: at the address by which everybody will know it, or where it is told to."""

from __future__ import annotations

import socket

import pytest

from evenflow.errors import ClusterError
from evenflow.world.spark.executor.site_task import SiteConfig, open_site_port, source_address


def config(bind: str | None, driver: str = "127.0.0.1") -> SiteConfig:
    return SiteConfig("engine", (driver, 4000), 1, 10.0, bind, b"secret")


def own_address() -> str:
    """An address of this machine that others may reach; the loopback one where it has no other."""
    try:
        return source_address(("192.0.2.1", 9))
    except OSError:
        return "127.0.0.1"


@pytest.mark.parametrize("driver", ["127.0.0.1", "localhost", own_address()])
def test_a_site_listens_where_it_reaches_its_driver_from(driver: str) -> None:
    listener = socket.create_server((driver, 0))
    with listener, socket.create_connection(listener.getsockname()) as connection, open_site_port(config(None, driver)) as port:
        assert port.getsockname()[0] == connection.getsockname()[0] != "0.0.0.0"


def test_a_site_listens_where_it_is_told_to() -> None:
    with open_site_port(config("0.0.0.0")) as port:
        assert port.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("bind", ["192.0.2.1", "no such name"])
def test_an_address_that_is_not_this_machine_s_is_an_error_that_names_the_option(bind: str) -> None:
    with pytest.raises(ClusterError, match=f"cannot listen at {bind} .*`bind`"):
        open_site_port(config(bind))
