"""Reach a running engine from another process: find the file in which it says where it listens, and ask it something.

The file lies in a directory that only its owner can read, since it has the secret with which both ends prove themselves (see `handshake`):
`EVENFLOW_CONTROL_DIR`, or the user's runtime directory, or one in the system's temporary directory. A file whose process has ended is
removed by whoever finds it, and by the next engine that starts.

    hello {"as": "operator", "ask": "drain", "site": 3}
    <- {"said": "site 3 still hosts 12 replicas"}      any number of these messages in JSON
    <- {"done": {...}}  or  {"error": {"type": "OperationRefused", "message": "..."}}

    hello {"as": "operator", "ask": "watch"}
    <- {"told": {"kind": "scene", ...}}                and {"told": {"kind": "reading", ...}} until either end goes
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evenflow import errors
from evenflow.errors import EngineUnreachable, EvenflowError, OperationRefused, ProtocolError, StatisticsError, StrangerRefused
from evenflow.monitor.reading import Reading
from evenflow.monitor.recorded import told
from evenflow.monitor.scene import Scene
from evenflow.private import NotPrivate, private_directory, shared_directory
from evenflow.world.owned import Owner, is_owned
from evenflow.world.spark.net.handshake import dial


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens. engine: its id. name: of the application. secret: kept out of every text."""

    engine: str
    name: str
    pid: int
    host: str
    port: int
    secret: bytes = field(repr=False)

    def to_json(self) -> str:
        known = {"engine": self.engine, "name": self.name, "pid": self.pid, "host": self.host, "port": self.port}
        return json.dumps(known | {"secret": self.secret.hex()})

    @staticmethod
    def from_json(text: str) -> Address:
        """Raises ValueError, KeyError or TypeError for anything else."""
        told = json.loads(text)
        secret = bytes.fromhex(told["secret"])
        return Address(str(told["engine"]), str(told["name"]), int(told["pid"]), str(told["host"]), int(told["port"]), secret)


def page_of(engine: str) -> str | None:
    """Address of an engine's page with the token of who may look, if one is open on this machine; the newest of several."""
    found = []
    for path in control_directory().glob(f"{engine}.*.ui"):
        try:
            if is_owned(path):
                found.append((path.stat().st_mtime, str(json.loads(path.read_text(encoding="utf-8"))["view"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # It is being written, or has gone.
    return max(found)[1] if found else None


def control_directory() -> Path:
    """Where the files of this user's engines lie. Made if it is not there. Raises EngineUnreachable if others could read or change it."""
    given, runtime = os.environ.get("EVENFLOW_CONTROL_DIR"), os.environ.get("XDG_RUNTIME_DIR")
    try:
        if given:
            Path(given).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return private_directory(Path(given))
        if runtime and Path(runtime).is_dir():
            return private_directory(Path(runtime) / "evenflow")
        return shared_directory()
    except NotPrivate as error:
        raise EngineUnreachable(f"{error}. Or set EVENFLOW_CONTROL_DIR to a directory that only you can read and write") from None
    except OSError as error:
        raise EngineUnreachable(f"control files have no place ({error}): set EVENFLOW_CONTROL_DIR") from None


def write(address: Address) -> Owner:
    """Say where an engine of this process listens. Returns the file, which only its owner can read."""
    path = control_directory() / f"{address.engine}.json"
    try:
        return Owner(path, address.to_json())
    except OSError as error:
        raise EngineUnreachable(f"{path} cannot be written ({error.strerror}): set EVENFLOW_CONTROL_DIR") from None


def engines() -> list[Address]:
    """The engines of this user that run on this machine. Files of those that have died are removed."""
    there = []
    for path in sorted(control_directory().glob("*.json")):
        try:
            address = Address.from_json(path.read_text(encoding="utf-8"))
            if is_owned(path):
                there.append(address)
            else:
                path.unlink(missing_ok=True)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # It is being removed, or is none of ours.
    return there


def clear() -> None:
    """Remove what engines that have died have left."""
    with contextlib.suppress(EngineUnreachable):
        engines()


def ended(address: Address, given: str | None = None) -> str | None:
    """Why an engine that could not be reached will not come back; None if it lives, as far as can be known: a broken connection is no end.

    given: by what it was found, if that was a path. A file proves by its lock that its process lives, however that has ended; one that
    nobody has locked and that was copied here is believed if its process is there.
    """
    where = f"engine {address.engine} ({address.name}, process {address.pid})"
    path = _file_of(address, given)
    try:
        now = Address.from_json(path.read_text(encoding="utf-8"))
        if now.pid != address.pid or now.engine != address.engine:
            return f"{where} has ended, and another is at {path}"
        if is_owned(path) or _copied(path, address):
            return None
        return f"{where} has ended without a word: its process is gone"
    except FileNotFoundError:
        return f"{where} has ended"
    except (OSError, ValueError, KeyError, TypeError):
        return None  # It is being written.


def left_its_file(address: Address, given: str | None = None) -> bool:
    """Whether an engine that was reached has not ended in order, since then it takes its file away. given: as for `ended`."""
    return _file_of(address, given).exists()


def _file_of(address: Address, given: str | None) -> Path:
    by_path = given is not None and (os.sep in given or given.endswith(".json"))
    return Path(given) if given is not None and by_path else control_directory() / f"{address.engine}.json"


def _copied(path: Path, address: Address) -> bool:
    """Whether the file lies elsewhere than where an engine locks it, so that its lock proves nothing, and its process may be there."""
    own = control_directory() / f"{address.engine}.json"
    if own.exists():
        return path.resolve() != own.resolve() and is_owned(own)
    if address.host not in ("127.0.0.1", "::1", "localhost"):
        return True
    try:
        os.kill(address.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def find(engine: str | None = None) -> Address:
    """The engine with this id, or whose file this is; None: the only one that runs. Raises EngineUnreachable if there is none, and
    OperationRefused if there are several."""
    if engine is not None:
        path = Path(engine) if os.sep in engine or engine.endswith(".json") else control_directory() / f"{engine}.json"
        try:
            return Address.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise EngineUnreachable(f"there is no control file {path} ({error.strerror}): the engine has ended, or is another") from None
        except (ValueError, KeyError, TypeError):
            raise EngineUnreachable(f"{path} is not the control file of an engine") from None
    there = engines()
    if not there:
        raise EngineUnreachable(
            "no engine runs here that could be asked: start one with `evenflow run FILE.py`, or call engine.open_control() in your program"
        )
    if len(there) > 1:
        several = ", ".join(f"{address.engine} ({address.name}, process {address.pid})" for address in there)
        raise OperationRefused(f"several engines run here: say which with --engine. There are {several}")
    return there[0]


def ask(address: Address, what: str, say: Callable[[str], None] | None = None, **given: Any) -> dict[str, Any]:
    """Ask an engine for something and wait for the answer, as long as it takes. say: is told how far it is.

    Raises EngineUnreachable if nobody answers there, and what the engine itself raised.
    """
    where = f"engine {address.engine} ({address.name}, process {address.pid})"
    try:
        connection = dial((address.host, address.port), address.secret, {"as": "operator", "ask": what, **given})
    except (OSError, StrangerRefused) as error:
        raise EngineUnreachable(f"{where} does not answer at {address.host}:{address.port}: {error}. It may have ended") from None
    except ValueError:
        raise OperationRefused("that is too much for one request: name fewer partitions or sites") from None
    with connection:
        connection.settimeout(None)
        try:
            while True:
                told = connection.hear()
                if "done" in told:
                    done: dict[str, Any] = told["done"]
                    return done
                if "error" in told:
                    raise _raised(told["error"])
                if say is not None:
                    say(str(told["said"]))
        except ConnectionError:
            raise EngineUnreachable(f"{where} has ended before it was done") from None
        except (OSError, ProtocolError) as error:
            raise EngineUnreachable(f"{where} has broken the connection: {error}") from None


SILENT_S: Final = 10.0
"""An engine that is watched and says nothing for this long has stopped."""


def watch(address: Address) -> Generator[Scene | Reading, None, None]:
    """What an engine tells those who watch it, as it comes: a scene first and whenever it changes, and a reading twice a second. Who asks
    seldom gets the newest. Ends when the engine does; close the iterator to end it before.

    Raises EngineUnreachable if nobody answers there or the engine says nothing any more, OperationRefused if too many watch it.
    """
    where = f"engine {address.engine} ({address.name}, process {address.pid})"
    try:
        connection = dial((address.host, address.port), address.secret, {"as": "operator", "ask": "watch"})
    except (OSError, StrangerRefused) as error:
        raise EngineUnreachable(f"{where} does not answer at {address.host}:{address.port}: {error}. It may have ended") from None
    with connection:
        connection.settimeout(SILENT_S)
        while True:
            try:
                heard = connection.hear()
                if "error" in heard:
                    raise _raised(heard["error"])
                each = told(heard.get("told"))
                if each is not None:
                    yield each
            except ConnectionError:
                return
            except (OSError, ProtocolError, StatisticsError) as error:
                raise EngineUnreachable(f"{where} cannot be watched any more: {error}") from None


KNOWN: Final = (
    errors.OperationRefused, errors.ClusterError, errors.QueryError, errors.PolicyError, errors.LocationError, errors.JournalCorrupt,
    errors.CheckpointCorrupt, errors.VersionChanged, errors.CodeNotAllowed,
)  # fmt: skip
"""What is raised here as it was there."""


def _raised(told: dict[str, str]) -> EvenflowError:
    """What the engine raised, as the same class where that is one of ours that takes a message alone."""
    kind = getattr(errors, told["type"], None)
    if kind in KNOWN:
        known: EvenflowError = kind(told["message"])
        return known
    return EvenflowError(f"{told['type']}: {told['message']}")
