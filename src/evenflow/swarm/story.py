"""The story of a run: one line per event, with virtual time, site, rule, event and the numbers that matter."""

from __future__ import annotations

from evenflow.coordinator.events import CoordinatorAction, CoordinatorEvent, EpochSeen, Happened, SiteLost, SiteReady, SiteSaid
from evenflow.exchange.section import Section
from evenflow.site.events import Event, Heard, LinkDown, LinkUp, MembershipChanged, PlanCommitted, PlanProposed, Release, WorkDone
from evenflow.world.sim.driver import SimDriver
from evenflow.world.sim.observer import Observer
from evenflow.world.sim.site import SimSite
from evenflow.world.sim.world import SimWorld


class StoryTeller(Observer):
    """lines: all of it, in order."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.lines: list[str] = []
        world.observers = (*world.observers, self)

    def _say(self, who: str, rule: str, text: str) -> None:
        self.lines.append(f"{(self.world.clock.now_us - 1_000_000) / 1000:10.3f} ms  {who:<8} {rule:<3} {text}")

    def handled(self, site: SimSite, event: Event) -> None:
        part = site.part
        state = f"closed {part.closed} processed {part.processed} finished {part.finished}"
        self._say(f"site {site.index}", part.story.lines[-1][0].id, f"{describe(event)}; {state}")

    def coordinated(self, driver: SimDriver, event: CoordinatorEvent, actions: list[CoordinatorAction]) -> None:
        if not isinstance(event, EpochSeen):
            self._say("driver", driver.machine.story.lines[-1][0].id, describe_told(event))
        for action in actions:
            if isinstance(action, Happened):
                self._say("driver", "", f"{action.kind}: {action.text}")

    def release_came(self, site: int, release: Release, accepted: bool) -> None:
        taken = "taken" if accepted else "not needed"
        self._say("driver", "O1", f"release of epoch {release.epoch} of segment {release.segment} from site {site}: {taken}")

    def fault(self, text: str) -> None:
        self._say("fault", "", text)


def describe(event: Event) -> str:
    """An event of a site in a few words."""
    name = type(event).__name__
    match event:
        case Heard(peer, section):
            return f"{name} site {peer}: {in_section(section)}"
        case LinkUp(peer) | LinkDown(peer):
            return f"{name} {peer}"
        case WorkDone(outcome):
            return f"{name} {outcome.key} epoch {outcome.tick.epoch}"
        case MembershipChanged(m):
            return f"{name} {m.number} sites {m.sites} joining {[c.number for c in m.joining]} dropped {m.dropped} leaders {m.leaders}"
        case PlanProposed(plan) | PlanCommitted(plan):
            copies = [(c.number, c.segment, c.source, c.target) for c in plan.copies]
            return f"{name} {plan.number} from epoch {plan.effective}, copies {copies}"
    return f"{event!r:.90}" if len(repr(event)) < 200 else name


def in_section(section: Section) -> str:
    said = []
    for mark in section.marks:
        said.append(f"mark f{mark.feed} s{mark.stream} e{mark.epoch}" if mark.stream != 65_535 else f"closed e{mark.epoch}")
    said += [f"resume s{r.stream} c{r.cohort} f{r.feed} from e{r.start} {r.producers}" for r in section.resumes]
    said += [f"record {r.segment}/{r.partition} e{r.epoch} t{r.term}" for r in section.records]
    said += [f"held {h.segment}/{h.partition} e{h.epoch} t{h.term}{' asks' if h.asks else ''}" for h in section.held]
    said += [f"settled {s.segment}/{s.partition} e{s.epoch} t{s.term}" for s in section.settled]
    if section.ack is not None:
        said.append(f"ack {section.ack.received} p{section.ack.processed} f{section.ack.finished} g{section.ack.granted}")
    return ", ".join(said) or "nothing"


def describe_told(event: CoordinatorEvent) -> str:
    name = type(event).__name__
    match event:
        case SiteReady(site):
            return f"{name} {site}"
        case SiteSaid(site, fact):
            return f"{name} {site}: {fact!r:.120}"
        case SiteLost(site, why):
            return f"{name} {site}: {why}"
    return f"{event!r:.100}"
