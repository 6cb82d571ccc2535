"""A preview: a saved dataflow is tried (`trying`) in a process of its own, which has few seconds and little memory, and then ends.

What a file or a person's expression does there, for ever or with all the memory there is, ends that process alone, with an error that
says so. The request goes in as one JSON object, and one comes back.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from evenflow import errors
from evenflow.child_python import command_of
from evenflow.errors import BoxFailed, EvenflowError, OptionError, PreviewFailed
from evenflow.testing.limited import Ended, end_with_parent, run_limited

MOST_BYTES: Final = 1_000_000
"""Of the rows that are given."""
MOST_SAID: Final = 16 << 20
"""Bytes of an answer."""
TOO_LONG: Final = {"error": "too long"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a preview may take: CPU seconds and bytes of memory beyond those of a process that has done nothing yet, and seconds in all."""

    cpu_s: int = 10
    memory_bytes: int = 1 << 30
    wall_s: float = 60.0


def preview(
    document: str, samples: Mapping[str, Any] | None = None, taps: Sequence[tuple[str, int]] | None = None, *, rows: int = 200,
    shown: int = 100, modules: Sequence[str] = (), allow_pickle: bool = False, limits: Limits | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What `trying.tried` says of a saved dataflow. document: its JSON. modules, allow_pickle: as of `Dataflow.from_json`.

    Raises PreviewFailed where the process had to be ended; OptionError for more than 1 MB of rows; and what is wrong with the dataflow, a
    sample or a row, as in a run.
    """
    limits = limits or Limits()
    given = json.dumps(samples or {})
    if len(given) > MOST_BYTES:
        raise OptionError(f"a preview takes {MOST_BYTES:,} bytes of rows, and these are {len(given):,}: give fewer")
    request = {"document": document, "samples": samples or {}, "taps": taps, "rows": rows, "shown": shown, "modules": list(modules)}
    text = json.dumps({**request, "allow_pickle": allow_pickle, "limits": asdict(limits)})
    done = run_limited(command_of("from evenflow.testing.preview import child; child()"), text + "\n", limits.wall_s, MOST_SAID)
    if done.late:
        raise PreviewFailed("time", f"the preview has not ended in {limits.wall_s:g} s: give fewer rows, or look for what waits")
    answer = None if len(done.said) > MOST_SAID else _answer(done.said.decode(errors="replace"))
    if len(done.said) > MOST_SAID or answer == TOO_LONG:
        raise PreviewFailed("size", f"the preview shows more than {MOST_SAID >> 20} MB: look at fewer arrows, or at fewer rows")
    if answer is None:
        raise _ended(done, limits)
    if "error" in answer:
        raise _raised(answer["error"], limits)
    return answer


def _answer(text: str) -> dict[str, Any] | None:
    """The last line of what the child has said; code that is tried may print, too."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) and ("taps" in found or "error" in found) else None


def _ended(done: Ended, limits: Limits) -> PreviewFailed:
    code, said = done.code, done.complained.decode(errors="replace")
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and done.cpu_s >= limits.cpu_s):
        return PreviewFailed("cpu", f"the preview took more than {limits.cpu_s} s of CPU and was ended: does a box loop for ever?")
    if code == -signal.SIGABRT or "MemoryError" in said or "bad_alloc" in said:
        return _too_large(limits)
    last = said.strip().rpartition("\n")[2][:200]
    return PreviewFailed("ended", f"the preview's process has ended with code {code}{': ' + last if last else ''}")


def _too_large(limits: Limits) -> PreviewFailed:
    mib = limits.memory_bytes >> 20
    return PreviewFailed("memory", f"the preview took more than {mib:,} MiB of memory and was ended: does a box keep too much?")


def _raised(told: Mapping[str, Any], limits: Limits) -> EvenflowError:
    """What the child raised, as the same class where that takes a message."""
    if told["type"] in ("MemoryError", "ArrowMemoryError") or "ArrowMemoryError" in told["message"] or "MemoryError" in told["message"]:
        return _too_large(limits)
    if told["type"] == "BoxFailed":
        return BoxFailed(told["box"], told["epoch"], told["user_traceback"], told["reason"])
    kind = getattr(errors, told["type"], None)
    if isinstance(kind, type) and issubclass(kind, EvenflowError):
        try:
            return kind(told["message"])
        except TypeError:
            pass
    return PreviewFailed("ended", f"the preview ended with {told['type']}: {told['message']}")


# ---------------------------------------------------------------- in the child


def child() -> None:
    """Read the request, take the limits, try it, answer."""
    request = json.loads(sys.stdin.readline())
    end_with_parent()
    out = sys.stdout
    sys.stdout = sys.stderr
    try:
        answer = _within(request)
    except EvenflowError as error:
        answer = {"error": {"type": type(error).__name__, "message": str(error)}}
        if isinstance(error, BoxFailed):
            answer["error"] |= {"box": error.box, "epoch": error.epoch, "user_traceback": error.user_traceback, "reason": error.reason}
    except Exception as error:
        answer = {"error": {"type": type(error).__name__, "message": str(error)}}
    text = json.dumps(answer, allow_nan=False)
    if len(text) >= MOST_SAID - 2:
        text = json.dumps(TOO_LONG)
    out.write("\n" + text + "\n")
    out.flush()


def _within(request: Mapping[str, Any]) -> dict[str, Any]:
    from evenflow.kernels import warm
    from evenflow.query.serial import network_from_json
    from evenflow.testing.trying import tried

    limits = Limits(**request["limits"])
    warm()  # What is compiled is no part of what is tried.
    _limit(limits)
    network = network_from_json(request["document"], allow_pickle=request["allow_pickle"], modules=request["modules"])
    taps = request["taps"] and [(name, port) for name, port in request["taps"]]
    return tried(network, request["samples"], taps, rows=request["rows"], shown=request["shown"])


def _limit(limits: Limits) -> None:
    """From here on so much more than there is already."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(used.ru_utime + used.ru_stime) + limits.cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/status", encoding="ascii") as status:
        data_kib = next(int(line.split()[1]) for line in status if line.startswith("VmData:"))
    most = data_kib * 1024 + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


__all__ = ["Limits", "child", "preview"]
