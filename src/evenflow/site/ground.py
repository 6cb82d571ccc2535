"""The ground that a part stands on: plans and members, frames that come and go, the ingress, credit; and how it acts.

What is here needs nothing of what is built on it. Whoever needs the whole of a part's ground takes `Ground`; what some of them ask of
`housing` is a protocol, since housing asks things of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from evenflow.exchange.credit import Credit
from evenflow.exchange.outbox import Outbox
from evenflow.exchange.section import close_mark
from evenflow.plan.layout import Layout
from evenflow.plan.membership import Membership
from evenflow.plan.plan import Plan
from evenflow.site.cohort import Cohort
from evenflow.site.content import ContentIngress, OwnLeading, grid_of
from evenflow.site.events import Action, Heard, OpenSource, SetTimer, TellCoordinator
from evenflow.site.facts import Fact
from evenflow.site.feeding import Feeding
from evenflow.site.ingress import Ingress
from evenflow.site.leading import Leading
from evenflow.site.options import FlowOptions
from evenflow.site.reflex import Reflex, sheddable
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.site.tally import Counters, Tallies
from evenflow.site.view import View
from evenflow.stream.ids import SiteId


class Houses(Protocol):
    """What others ask of `Housing`."""

    @property
    def consumed(self) -> tuple[int, ...]: ...
    @property
    def joining(self) -> bool: ...
    @property
    def order(self) -> Sequence[Cohort]: ...
    def producing(self, stream: int) -> Sequence[Cohort]: ...
    def note_begun(self, cohort: Cohort) -> None: ...


class Acts(Protocol):
    """Who says what the world is to do: a part, to those that it is made of."""

    def act(self, action: Action) -> None: ...
    def tell(self, fact: Fact) -> None: ...
    def set_timer(self, name: str, after_ms: float) -> None: ...


EVERY_EPOCH: Final = 2**62
"""Durable where nothing is journalled: ends wait for nothing."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a part is made with. site: this one's index. options: see FlowOptions. beginning: where the run goes on, if it has a past.
    journalled: the run has a journal, so ends wait for `Durable`."""

    layout: Layout
    plan: Plan
    membership: Membership
    site: SiteId
    options: FlowOptions
    beginning: Beginning = FROM_NOTHING
    journalled: bool = False


class Ground:
    """For what it is made with see `Setup`.

    processed: last epoch that every live segment here has processed. finished: the same, and sinks have taken it. cohorts: what is
    hosted, by (segment, number). stable: by segment, up to where what it
    receives is never asked for again, where it begins again from a base (B2). captures_at: the newest epoch at whose end a
    checkpoint wants state (K2). durable: last epoch that ends may take (J3).

    What is new since it was last looked what follows: _stirred, anything; _may_close, something that an epoch may close for; _may_begin,
    something that a cohort may begin its next epoch for; _came_further, a cohort has finished one.
    """

    housing: Houses

    def __init__(self, setup: Setup) -> None:
        layout, site, beginning = setup.layout, setup.site, setup.beginning
        options = setup.options.paced(layout.every_us)
        self.layout, self.site, self.options, self.beginning = layout, site, options, beginning
        self.view = View(layout, setup.plan, setup.membership, site, beginning.before(setup.plan))
        self.counters, self.tallies = Counters(), Tallies()
        self.now_us = 0
        self.started = self.failed = self.completed = False
        self.processed = self.finished = beginning.epoch
        self.captures_at = 0
        self.stable: tuple[int, ...] = (beginning.epoch,) * len(layout.segments)
        self.journalled, self.durable = setup.journalled, beginning.durable if setup.journalled else EVERY_EPOCH
        self.cohorts: dict[tuple[int, int], Cohort] = {}
        self.credit = Credit(site, options.window_epochs, beginning.epoch)
        linger_us, active = options.linger_ms * 1000, options.shedding != "off"
        reflex = Reflex(sheddable(layout), options.pipeline, self.tallies, active=active, linger_us=linger_us)
        self.outbox = Outbox()
        grid = grid_of(layout)
        self.by_content = grid is not None
        if grid is None:
            self.ingress = Ingress(options, beginning, reflex)
        else:
            self.ingress = ContentIngress(options, grid, beginning, journalled=setup.journalled)
            self.ingress.end_by(setup.plan.settings.ends or EVERY_EPOCH)
        leads = OwnLeading if self.by_content else Leading
        self.leading = leads(layout, self.view, self.ingress, self.outbox, keeps_cuts=setup.journalled)
        self.feeding = Feeding(layout, self.view, self.outbox, self.cohorts)
        self.held: dict[SiteId, list[Heard]] = {}
        self._actions: list[Action] = []
        self._stirred = True
        self._may_close = self._may_begin = self._came_further = False

    @property
    def epoch_known(self) -> int:
        """The last epoch that is known here to have been closed. Who closed it may have died since, with all that were to promise for
        it: where sites read for themselves, or where nobody follows a source (B4). What it has sent is here (V2)."""
        ingress = self.ingress
        if isinstance(ingress, ContentIngress):
            return ingress.known
        closed = ingress.closed if ingress.queues else 0
        return max(closed, self.feeding.newest(), self.leading.newest_witnessed())

    def stir(self) -> None:
        """Something is new: look what follows from it."""
        self._stirred = True

    def act(self, action: Action) -> None:
        self._actions.append(action)

    def tell(self, fact: Fact) -> None:
        self._actions.append(TellCoordinator(fact))

    def set_timer(self, name: str, after_ms: float) -> None:
        self._actions.append(SetTimer(name, self.now_us + int(after_ms * 1000)))  # type: ignore[arg-type]

    def say_closed(self, peer: SiteId) -> None:
        """Tell a peer which epoch the ingress here has closed, unless that is over everywhere: it may have led nothing for a while."""
        epoch = self.ingress.closed
        if epoch <= min(self.finished, self.credit.processed):  # A site that only leads has finished what others still wait for.
            return
        plan = self.view.plan_at(max(epoch, self.view.plans[0].effective))  # Older ones are forgotten when this site is through.
        self.outbox[peer].marks.append(close_mark(epoch, plan.number, self.ingress.stamp))

    def open_source(self, segment: int, partition: int, rows: int, end: int = 0) -> None:
        self._actions.append(OpenSource(segment, partition, rows, self.ingress.beginning.through((segment, partition)), end))
