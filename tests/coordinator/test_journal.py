"""The journal at the coordinator: what goes into it, when it is durable, and what a store's answers mean (J1-J4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from evenflow.availability.content import Content
from evenflow.availability.entries import Begun, Completed, Cut, Ended, Entry, Logged, Piece, Stopped, from_bytes, to_bytes
from evenflow.availability.standing import standing
from evenflow.coordinator.checkpointing import PATIENCE_MAX_MS, PATIENCE_MS
from evenflow.coordinator.events import (
    Append,
    Appended,
    AppendRefused,
    AppendUnknown,
    CheckpointPause,
    CheckpointRequested,
    CoordinatorAction,
    CoordinatorEvent,
    Denied,
    EndRun,
    EntryRead,
    Happened,
    Kind,
    OpenEnds,
    PlanChangeRequested,
    ReadEntry,
    ReadFailed,
    RunPause,
    SiteLost,
    SiteReady,
    SiteSaid,
    StopRequested,
    Tell,
    Waited,
    Wake,
)
from evenflow.coordinator.journal import CORRUPT_MAX, Journal
from evenflow.coordinator.machine import RunMachine
from evenflow.errors import Fenced, JournalCorrupt, LocationError, ProtocolError
from evenflow.plan.placement import first_membership, first_plan
from evenflow.site import facts
from evenflow.site.events import Checkpoint, DrainRequested, Durable
from evenflow.site.facts import PartFinished
from evenflow.site.replaying import Beginning
from tests.coordinator.test_machine import LAYOUT, end, promise

A, B = (0, 0), (0, 1)
PLAN = first_plan(LAYOUT, 2, 2)
BEGUN = Begun("run", "t", "", {}, (A, B), Content.of(PLAN))


def cut(epoch: int) -> Cut:
    return Cut(epoch, 100 * epoch, 100 * epoch, 10 * epoch, False, False)


def cuts(first: int, last: int) -> tuple[Cut, ...]:
    return tuple(cut(epoch) for epoch in range(first, last + 1))


def machine(spares: int = 0) -> RunMachine:
    """A run with two replicas at sites 0 and 1, whose driver has just begun generation 1."""
    journal = Journal.of(standing([Entry(1, 1, "mine", BEGUN)]))
    run = RunMachine(LAYOUT, PLAN, first_membership(LAYOUT, PLAN, range(2 + spares)), settle_ms=0, journal=journal)
    for site in range(2 + spares):
        run.handle(SiteReady(site))
    return run


def tell(run: RunMachine, site: int, **told: tuple[Cut, ...]) -> list[CoordinatorAction]:
    """A site tells cuts of partitions a and b."""
    return run.handle(SiteSaid(site, facts.Logged({{"a": A, "b": B}[name]: of for name, of in told.items()})))


def appends(actions: list[CoordinatorAction]) -> list[Entry]:
    return [action.entry for action in actions if isinstance(action, Append)]


def durable(actions: list[CoordinatorAction]) -> dict[int, int]:
    """What sites are told, by site."""
    return {action.site: action.message.epoch for action in actions if isinstance(action, Tell) and isinstance(action.message, Durable)}


def test_an_epoch_is_durable_when_the_cuts_of_all_partitions_are_in() -> None:
    run = machine()
    [entry] = appends(tell(run, 0, a=cuts(1, 2)))
    assert entry == Entry(2, 1, "mine", Logged({A: cuts(1, 2)})) and entry.matter == Logged({A: cuts(1, 2)})
    assert run.durable == 0

    told = run.handle(Appended(2))
    assert (durable(told), run.durable) == ({}, 0), "nothing is known of the other partition"
    tell(run, 1, b=cuts(1, 1))
    told = run.handle(Appended(3))
    assert durable(told) == {0: 1, 1: 1} and OpenEnds(1) in told and run.durable == 1


def test_one_entry_is_appended_at_a_time_and_what_comes_meanwhile_goes_into_the_next() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 1))
    assert appends(tell(run, 1, b=cuts(1, 1))) == appends(tell(run, 0, a=cuts(2, 3))) == []
    [entry] = appends(run.handle(Appended(2)))
    assert (entry.number, entry.matter) == (3, Logged({A: cuts(2, 3), B: cuts(1, 1)}))
    assert appends(run.handle(Appended(3))) == []


def test_what_a_successor_tells_again_is_appended_once() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 3))
    assert appends(tell(run, 1, a=cuts(2, 3))) == []
    [entry] = appends(run.handle(Appended(2)) + tell(run, 1, a=cuts(1, 4)))
    assert entry.matter == Logged({A: cuts(4, 4)})


def test_a_cut_that_does_not_follow_on_the_last_is_a_fault() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 1))
    with pytest.raises(ProtocolError, match=r"epoch 3 of ingress partition \(0, 0\) is to be journalled after 1"):
        tell(run, 0, a=cuts(3, 3))


def test_a_plan_goes_in_if_content_depends_on_it() -> None:
    run = machine()
    run.handle(PlanChangeRequested())
    assert appends(promise(run)) == [], "things lie elsewhere: a restart places them anew anyway"

    run.rounds.weights = ((), (3,) * 8, ())
    run.handle(PlanChangeRequested())
    [entry] = appends(promise(run))
    content = Content(run.plan.effective, (), ((), (3,) * 8, ()))
    assert entry.matter == Logged({}, (content,))
    run.handle(Appended(2))
    run.handle(PlanChangeRequested())
    assert appends(promise(run)) == [], "it says nothing new"


# ------------------------------------------------------------ the store's answers


def waits(actions: list[CoordinatorAction]) -> float:
    [wake] = [action for action in actions if isinstance(action, Wake)]
    assert wake.pause is RunPause.STORE
    return wake.after_ms


def test_an_entry_that_is_there_already_is_read_and_is_own_if_it_has_its_nonce() -> None:
    run = machine()
    [entry] = appends(tell(run, 0, a=cuts(1, 1), b=cuts(1, 1)))
    assert run.handle(AppendRefused(2)) == [ReadEntry(2)]
    assert durable(run.handle(EntryRead(2, entry))) == {0: 1, 1: 1}


@pytest.mark.parametrize("foreign", [Entry(2, 2, "other", BEGUN), Entry(2, 1, "other", Ended(0)), Entry(2, 2, "mine", BEGUN)])
def test_an_entry_of_another_driver_ends_the_run(foreign: Entry) -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 1), b=cuts(1, 1))
    run.handle(AppendRefused(2))
    ended = end(run.handle(EntryRead(2, foreign)))
    assert ended is not None and isinstance(ended.error, Fenced) and run.durable == 0
    assert f"generation {foreign.generation}" in str(ended.error)


def test_what_may_have_been_appended_is_read_and_tried_again_only_if_it_is_not_there() -> None:
    run = machine()
    [entry] = appends(tell(run, 0, a=cuts(1, 1)))
    tell(run, 1, b=cuts(1, 1))
    assert waits(run.handle(AppendUnknown(2, "timed out"))) > 0
    assert run.handle(Waited(RunPause.STORE)) == [ReadEntry(2)]
    [again] = appends(run.handle(EntryRead(2, None)))
    assert again is entry, "the first try may still be done: never another entry of that number"
    run.handle(AppendUnknown(2, "timed out"))
    run.handle(Waited(RunPause.STORE))
    [following] = appends(run.handle(EntryRead(2, entry)))
    assert following.matter == Logged({B: cuts(1, 1)})


def test_an_own_entry_that_says_something_else_is_a_fault() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 1))
    run.handle(AppendRefused(2))
    with pytest.raises(AssertionError, match="two entries of one number"):
        run.handle(EntryRead(2, Entry(2, 1, "mine", Logged({A: cuts(1, 2)}))))


def test_a_completed_checkpoint_that_is_read_back_is_known_again() -> None:
    """Its facts have been JSON since: what were pairs are lists then, and what were numbers as keys is text."""
    run = machine()
    assert run.journal is not None
    tell(run, 0, a=cuts(1, 1), b=cuts(1, 1))
    run.handle(Appended(2))
    run.journal.ask(Completed(1, 1, (Piece(0, 0, (0, 1), {"logs": {0: (1, False)}}, ()),)))
    [entry] = appends(tell(run, 0))
    run.handle(AppendRefused(3))
    found = from_bytes(to_bytes(entry), 3)
    assert found.matter != entry.matter
    run.handle(EntryRead(3, found))
    assert run.journal.last == 3


def test_a_store_that_fails_is_asked_less_and_less_often_and_a_person_is_told_once() -> None:
    run, kinds = machine(), list[str]()
    [entry] = appends(tell(run, 0, a=cuts(1, 1)))
    pauses = []
    for _ in range(14):
        actions = run.handle(AppendUnknown(2, "no route"))
        pauses.append(waits(actions))
        kinds += [action.kind for action in actions if isinstance(action, Happened)]
        run.handle(Waited(RunPause.STORE))
        assert appends(run.handle(EntryRead(2, None))) == [entry]
    assert pauses == sorted(pauses) and (pauses[0], pauses[-1]) == (1.0, 1000.0)
    assert kinds == [Kind.JOURNAL_WAITS]
    back = run.handle(Appended(2))
    assert [action.kind for action in back if isinstance(action, Happened)] == [Kind.JOURNAL_BACK]
    tell(run, 0, a=cuts(2, 2))
    assert waits(run.handle(AppendUnknown(3, "no route"))) == 1.0, "that is over"


def test_a_store_that_refuses_an_entry_and_shows_none_is_asked_less_and_less_often_and_a_person_is_told() -> None:
    """It lies, or its reads are behind. Method: the former for a while, and then the entry can be read."""
    run, kinds, pauses = machine(), list[str](), list[float]()
    [entry] = appends(tell(run, 0, a=cuts(1, 1), b=cuts(1, 1)))
    for _ in range(12):
        assert run.handle(AppendRefused(2)) == [ReadEntry(2)]
        actions = run.handle(EntryRead(2, None))
        assert appends(actions) == [], "not at once: that would go on and on"
        pauses.append(waits(actions))
        kinds += [action.kind for action in actions if isinstance(action, Happened)]
        assert run.handle(Waited(RunPause.STORE)) == [ReadEntry(2)]
        assert appends(run.handle(EntryRead(2, None))) == [entry]
    assert pauses == sorted(pauses) and (pauses[0], pauses[-1]) == (1.0, 1000.0)
    assert kinds == [Kind.JOURNAL_WAITS]
    run.handle(AppendRefused(2))
    back = run.handle(EntryRead(2, entry))
    assert durable(back) == {0: 1, 1: 1} and Kind.JOURNAL_BACK in [action.kind for action in back if isinstance(action, Happened)]


def test_an_entry_that_cannot_be_used_is_read_again_a_few_times() -> None:
    """Some stores show an object before it is whole."""
    run = machine()
    [entry] = appends(tell(run, 0, a=cuts(1, 1), b=cuts(1, 1)))
    run.handle(AppendRefused(2))
    for _ in range(CORRUPT_MAX - 1):
        run.handle(ReadFailed(2, JournalCorrupt("it is torn")))
        assert run.handle(Waited(RunPause.STORE)) == [ReadEntry(2)]
    assert durable(run.handle(EntryRead(2, entry))) == {0: 1, 1: 1}
    tell(run, 0, a=cuts(2, 2))
    run.handle(AppendRefused(3))
    for _ in range(CORRUPT_MAX - 1):
        run.handle(ReadFailed(3, LocationError("no route")))
        run.handle(Waited(RunPause.STORE))
        run.handle(ReadFailed(3, JournalCorrupt("it is torn")))
        run.handle(Waited(RunPause.STORE))
    ended = end(run.handle(ReadFailed(3, JournalCorrupt("it is torn"))))
    assert ended is not None and isinstance(ended.error, JournalCorrupt)


# ------------------------------------------------------------ who comes, and the end


def test_a_newcomer_hears_what_is_durable() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 4), b=cuts(1, 4))
    run.handle(Appended(2))
    assert durable(run.handle(SiteReady(2))) == {2: 4}
    tell(run, 0, a=cuts(5, 5), b=cuts(5, 5))
    assert durable(run.handle(Appended(3))) == {0: 5, 1: 5, 2: 5}


def finished(run: RunMachine, epoch: int = 3) -> list[CoordinatorAction]:
    return [action for site in run.sites for action in run.handle(SiteSaid(site, PartFinished(epoch, run.membership.number)))]


def test_a_run_is_over_when_its_journal_says_so() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 3), b=cuts(1, 3))
    run.handle(Appended(2))
    [entry] = appends(finished(run))
    assert entry.matter == Ended(3) and not run.over
    assert appends(finished(run)) == [], "a part may say it again"
    assert run.handle(Appended(3)) == [EndRun(None)]


@pytest.mark.parametrize("lost", [(0,), (0, 1)])
def test_a_death_after_the_last_epoch_changes_nothing(lost: tuple[int, ...]) -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 3), b=cuts(1, 3))
    run.handle(Appended(2))
    finished(run)
    for site in lost:
        assert run.handle(SiteLost(site, "its executor is gone")) == []
    assert run.handle(Appended(3)) == [EndRun(None)]


def test_what_a_store_answers_after_the_end_is_ignored() -> None:
    run = machine()
    tell(run, 0, a=cuts(1, 1))
    assert end(run.handle(StopRequested(drain=False, willed=False))) is not None
    answers: list[Any] = [Appended(2), AppendRefused(2), AppendUnknown(2, "?"), EntryRead(2, None), ReadFailed(2, LocationError("?"))]
    assert [run.handle(answer) for answer in [*answers, Waited(RunPause.STORE)]] == [[]] * 6


def test_a_run_that_is_stopped_ends_when_its_journal_says_so() -> None:
    """What is being appended comes before that, and nothing behind it."""
    run = machine()
    tell(run, 0, a=cuts(1, 1))
    assert end(run.handle(StopRequested(drain=False))) is None
    tell(run, 0, a=cuts(2, 2), b=cuts(1, 2))
    [entry] = appends(run.handle(Appended(2)))
    assert entry.matter == Stopped(0)
    assert end(run.handle(Appended(3))) == EndRun(None)


@pytest.mark.parametrize("asked", [StopRequested(drain=False), Waited(RunPause.STOP)])
def test_a_store_that_does_not_answer_keeps_no_run_from_being_stopped(asked: CoordinatorEvent) -> None:
    """It ends after a while, or when it is asked for once more."""
    run = machine()
    assert end(run.handle(StopRequested(drain=False))) is None
    assert end(run.handle(asked)) == EndRun(None)
    assert run.handle(Waited(RunPause.STOP)) == []


def test_a_checkpoint_that_is_not_whole_in_time_is_dropped_and_the_next_one_is_made() -> None:
    """Goal: a store that does not answer holds up no later checkpoint. Method: no site has stored anything when its time is over."""
    run = machine()
    tell(run, 0, a=cuts(1, 1))
    begun = run.handle(CheckpointRequested())
    assert Wake(PATIENCE_MS, CheckpointPause(1)) in begun
    assert {action.site for action in begun if isinstance(action, Tell) and isinstance(action.message, Checkpoint)} == {0, 1}

    [dropped] = [action for action in run.handle(Waited(CheckpointPause(1))) if isinstance(action, Happened)]
    assert dropped.kind is Kind.CHECKPOINT_DROPPED and dropped.text.endswith("it is not whole after 60 s")
    assert run.checkpointing.open is None and run.checkpointing.failures == 1

    run.handle(CheckpointRequested())
    assert run.handle(Waited(CheckpointPause(1))) == [], "that one is over, and another under way"
    assert run.checkpointing.open is not None and run.checkpointing.open.number == 2


def test_who_is_not_whole_in_time_has_longer_the_next_time() -> None:
    """Goal: a checkpoint becomes whole at last, however long its store takes. Method: three take too long, the fourth is stored."""
    run = machine()
    tell(run, 0, a=cuts(1, 1))

    def begin() -> float:
        [wake] = [action for action in run.handle(CheckpointRequested()) if isinstance(action, Wake)]
        assert run.checkpointing.open is not None and wake.pause == CheckpointPause(run.checkpointing.open.number)
        return wake.after_ms / PATIENCE_MS

    for times, said in ((1, "60 s"), (2, "120 s"), (4, "240 s")):
        assert begin() == times and run.checkpointing.open is not None
        dropped = run.handle(Waited(CheckpointPause(run.checkpointing.open.number)))
        assert [each.text.split(": ")[1] for each in dropped if isinstance(each, Happened)] == [f"it is not whole after {said}"]
    assert begin() == 8
    found = run.checkpointing.open
    run.checkpointing.completed(Completed(found.number, found.epoch, ()))
    assert run.checkpointing.patience_ms == 4 * PATIENCE_MS, "it has all of the state: what changes from now on is less"
    run.checkpointing.patience_ms = PATIENCE_MAX_MS
    run.checkpointing.lose_patience()
    assert run.checkpointing.patience_ms == PATIENCE_MAX_MS


def test_a_run_without_a_journal_waits_for_nothing() -> None:
    run = RunMachine(LAYOUT, PLAN, first_membership(LAYOUT, PLAN, range(2)), settle_ms=0)
    told = [action for site in range(2) for action in run.handle(SiteReady(site))]
    assert run.durable is None and durable(told) == {}
    assert finished(run)[-1] == EndRun(None)


def test_a_driver_that_takes_over_goes_on_behind_what_is_durable() -> None:
    """What was in for some partitions only is cut anew."""
    entries = [Entry(1, 1, "first", BEGUN), Entry(2, 1, "first", Logged({A: cuts(1, 5), B: cuts(1, 3)})), Entry(3, 2, "mine", BEGUN)]
    journal = Journal.of(standing(entries))
    assert (journal.generation, journal.nonce, journal.last, journal.durable) == (2, "mine", 3, 3)
    journal.note_cuts({A: cuts(4, 4), B: cuts(3, 4)})
    entry = journal.next()
    assert entry is not None and (entry.number, entry.generation) == (4, 2)
    assert entry.matter == Logged({A: cuts(4, 4), B: cuts(4, 4)})
    assert standing([*entries, entry]).durable == 4


def test_where_only_checkpoints_are_journalled_the_end_names_the_last_one_that_is_in() -> None:
    """Though the run was over before the checkpoint was."""
    journal = Journal.of(standing([Entry(1, 1, "mine", replace(BEGUN, behind=0))]))
    journal.ask(Completed(1, 25, ()))
    completed = journal.next()
    journal.close()
    assert completed is not None and completed.matter == Completed(1, 25, ()) and journal.next() is None
    journal.appended()
    ended = journal.next()
    assert ended is not None and ended.matter == Ended(25)


def test_who_asks_for_a_checkpoint_while_another_one_is_made_hears_that_it_is_worth_asking_again() -> None:
    run = machine()
    run.handle(CheckpointRequested(1))
    assert [each for each in run.handle(CheckpointRequested(2, last=True)) if isinstance(each, Denied)] == [Denied(2, ANY, busy=True)]


def test_what_is_stored_of_a_checkpoint_that_was_dropped_counts_for_no_other() -> None:
    """Its state is of another epoch. Method: one site cannot, the next checkpoint is asked for, and then the other one has stored."""
    run = machine()
    for request in (1, 2):
        told = run.handle(CheckpointRequested(request))
        ordered = {each.site: each.message.number for each in told if isinstance(each, Tell) and isinstance(each.message, Checkpoint)}
        assert ordered == {0: request, 1: request}
        if request == 1:
            run.handle(SiteSaid(1, facts.CheckpointUnable(1, "no room")))
    run.handle(SiteSaid(0, facts.CheckpointStored(1, ())))
    assert run.checkpointing.open is not None and run.checkpointing.open.owing == {0, 1}
    run.handle(SiteSaid(0, facts.CheckpointStored(2, ())))
    assert run.checkpointing.open.owing == {1}


def test_a_drain_that_comes_before_all_sites_are_ready_waits_where_something_was_taken_in() -> None:
    """Else what is durable, and was not given out when the driver before died, would be left for another start."""
    before = Beginning(cuts={A: cuts(1, 3), B: cuts(1, 3)}, generation=2)
    for beginning, waits in ((before, True), (Beginning(3, logs={A: (), B: ()}), True), (Beginning(), False)):
        run = RunMachine(LAYOUT, PLAN, first_membership(LAYOUT, PLAN, range(2)), settle_ms=0, beginning=beginning)
        run.handle(SiteReady(0))
        assert run.handle(StopRequested(drain=True)) == ([] if waits else [EndRun(None)])
        told = run.handle(SiteReady(1))
        drains = [Tell(site, DrainRequested()) for site in (0, 1)]
        assert [action for action in told if action in drains] == drains * waits
        assert not waits or end(run.handle(StopRequested(drain=False, willed=False))) == EndRun(None)
