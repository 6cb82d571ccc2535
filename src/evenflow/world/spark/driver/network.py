"""Where an engine's processes listen, and whom they believe, by its options."""

from __future__ import annotations

from typing import Any, Final, Protocol

from evenflow.errors import ClusterError, OptionError
from evenflow.stream.declared import May, Unfit
from evenflow.world.spark.net.handshake import new_secret
from evenflow.world.spark.net.trust import Given, Own, Trust, accepting, connecting, new_certificate

FILES: Final = ("tls_ca", "tls_certificate", "tls_key")
PORT_MOST: Final = 65_535


class NetworkOptions(Protocol):
    """What of an engine's options is meant here."""

    @property
    def tls(self) -> bool: ...
    @property
    def tls_ca(self) -> str | None: ...
    @property
    def tls_certificate(self) -> str | None: ...
    @property
    def tls_key(self) -> str | None: ...
    @property
    def tls_name(self) -> str | None: ...


def port_range() -> May:
    """Ports from one to another, both included: "40000-40099", or one of them. They are kept as a pair."""

    def fit(value: Any) -> tuple[int, int]:
        try:
            ends = [value, value] if isinstance(value, int) else value.split("-") if isinstance(value, str) else [*value]
            first, last = (int(end) for end in (ends if len(ends) == 2 else [*ends, *ends]))
        except (TypeError, ValueError):
            raise Unfit from None
        if isinstance(value, bool) or not 1 <= first <= last <= PORT_MOST:
            raise Unfit
        return first, last

    return May("the first and the last port, such as '40000-40099'", fit)


def check_tls(options: NetworkOptions) -> None:
    """Raise OptionError for options of TLS that contradict each other."""
    files = [name for name in FILES if getattr(options, name) is not None]
    if not options.tls and (files or options.tls_name is not None):
        raise OptionError(f"option: {(files or ['tls_name'])[0]} is given and tls is not: say tls=True, too")
    if files and len(files) < len(FILES):
        raise OptionError(
            f"option: {files[0]} is given and {next(name for name in FILES if name not in files)} is not: give all of {', '.join(FILES)}, "
            "or none of them for a certificate of the engine's own"
        )
    if options.tls_name is not None and not files:
        raise OptionError(
            "option: tls_name is given without tls_ca, tls_certificate and tls_key: the engine's own certificate has its own name"
        )


def new_trust(options: NetworkOptions) -> Trust:
    """For one engine. Raises TlsRefused for files that are of no use on this machine."""
    tls: Own | Given | None = None
    if options.tls:
        if options.tls_ca is None or options.tls_certificate is None or options.tls_key is None:
            tls = new_certificate()
        else:
            tls = Given(options.tls_ca, options.tls_certificate, options.tls_key, options.tls_name)
        accepting(tls), connecting(tls)
    return Trust(new_secret(), tls)


def cannot_listen(bind: str, error: OSError) -> ClusterError:
    return ClusterError(f"the driver cannot listen at {bind} ({error}): set spark.driver.bindAddress")


__all__ = ["NetworkOptions", "cannot_listen", "check_tls", "new_trust", "port_range"]
