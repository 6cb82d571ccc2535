"""A site's process is looked at for a while when the driver asks for it: one at a time, so that it never costs more than one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from evenflow.site.hosted import Hosted
from evenflow.statistics.profile import Profile
from evenflow.world.sampling import Sampling, box_mark
from evenflow.world.spark.executor.beside import Beside
from evenflow.world.spark.executor.user_thread import UserThread
from evenflow.world.spark.net import control
from evenflow.world.spark.net.reactor import Reactor

WAITS: Final = (Reactor.poll.__code__, UserThread._serve.__code__, Beside._serve.__code__)
"""Where threads of a site wait."""


class Sampled:
    """send: to the driver, from the loop's thread."""

    def __init__(self, site: int, reactor: Reactor, send: Callable[[control.Profiled], None]) -> None:
        self._site, self._reactor, self._send = site, reactor, send
        self._sampling: Sampling | None = None

    def begin(self, asked: control.Profile) -> None:
        if self._sampling is not None:
            self._send(control.Profiled(asked.number, "it is being sampled for somebody else", b""))
            return

        def done(profile: Profile) -> None:  # in the thread that samples
            told = json.dumps(profile.to_json(), separators=(",", ":")).encode()
            self._reactor.call_soon(lambda: over(told))

        def over(told: bytes) -> None:
            self._sampling = None
            self._send(control.Profiled(asked.number, "", told))

        self._sampling = Sampling(self._site, asked.seconds, done, {Hosted._run_steps.__code__: box_mark}, WAITS)

    def close(self) -> None:
        if self._sampling is not None:
            self._sampling.stop()
