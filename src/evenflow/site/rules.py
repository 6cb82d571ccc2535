"""The site's rules: what each event does to a part, one row per event and guard, named as in the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from evenflow.exchange.rules import Judge, Rule, RuleTable, always, otherwise
from evenflow.site import guards
from evenflow.site.bases import BackUp, BaseMoved, CheckpointCompleted, DropImages, GiveUp, ImagePasted, ReportImages, Revive
from evenflow.site.effects import Effects
from evenflow.site.events import (
    BatchDone,
    Checkpoint,
    DrainRequested,
    Durable,
    Heard,
    Leave,
    LinkDown,
    LinkUp,
    Loaded,
    LoadFailed,
    MembershipChanged,
    PlanAborted,
    PlanCommitted,
    PlanProposed,
    RowsArrived,
    SinkCommitted,
    SinkTook,
    SourceEnded,
    Spilled,
    SpillFailed,
    Started,
    StateArrived,
    StateMemoryChanged,
    StatePartRead,
    StateRead,
    StateUnread,
    TimerFired,
    TransferFailed,
    WorkDone,
    WriteFailed,
    Written,
)
from evenflow.site.given import EpochsGiven, SourceLeft
from evenflow.site.images import CaptureArrived, CapturePasted
from evenflow.site.kept_rows import RowsRead, RowsStored, RowsUnread
from evenflow.site.restoring import FROM_NOTHING, reviving
from evenflow.state.transfer import pack


def complete(part: Effects, event: CheckpointCompleted) -> None:
    """Effect of rule K5: what came up to its epoch is never asked for again (B2)."""
    part.capturing.complete(event)
    hold(part, [event.epoch] * len(part.stable))


def move_base(part: Effects, event: BaseMoved) -> None:
    """Effect of rule B2."""
    hold(part, [event.epoch if of == event.segment else before for of, before in enumerate(part.stable)])


def note_written(part: Effects, event: Written) -> None:
    """Effect of rule K4."""
    part.stir()
    part.capturing.note_written(event)


def give_up_checkpoint(part: Effects, event: WriteFailed) -> None:
    """Effect of rule K6."""
    part.capturing.note_failed(event)


def hold(part: Effects, stable: Sequence[int]) -> None:
    """B2: what these segments have received up to there is never asked for again."""
    part.stable = tuple(max(pair) for pair in zip(part.stable, stable, strict=True))
    part.audience.hold(part.housing.order, part.stable)


def revive(part: Effects, event: Revive) -> None:
    """Effect of rule B1."""
    if event.unit:
        part.imaging.revive(event)
    elif event.watermark is not None:
        facts = {**FROM_NOTHING, "epoch": event.epoch, "watermark": event.watermark, "committed": event.epoch}
        part.install_state(StateArrived(event.copy, pack(facts, [])))
    elif event.epoch == 0:
        part.install_state(StateArrived(event.copy, pack(FROM_NOTHING, [])))
    else:
        part.act(reviving(event, part.layout.segments[event.segment]))


def back_up(part: Effects, event: BackUp) -> None:
    """Effect of rule P1."""
    part.stir()
    part.backing.take(event)


def look_for_captures(part: Effects, event: TimerFired) -> None:
    """Effect of rule P6."""
    part.stir()
    part.backing.look()


def note_pasted(part: Effects, event: ImagePasted) -> None:
    """Effect of rule P3, at the sites that make and keep frames."""
    part.backing.pasted(event)
    hold(part, event.stable)


def lose_capture(part: Effects, event: TransferFailed) -> None:
    """Effect of rule P2 where a capture has not come to its backup."""
    part.backing.lost(-event.copy)


def take_capture(part: Effects, event: CaptureArrived) -> None:
    """Effect of rule P2 at the backup."""
    part.imaging.take(event.unit, event.capture)


def paste(part: Effects, event: CapturePasted) -> None:
    """Effect of rule P3 at the backup."""
    part.imaging.pasted(event)


def report_images(part: Effects, event: ReportImages) -> None:
    """Effect of rule P4."""
    part.imaging.report(event)


def drop_images(part: Effects, event: DropImages) -> None:
    """Effect of rule P5."""
    part.imaging.drop(event.units)


def give_up(part: Effects, event: GiveUp) -> None:
    """Effect of rule M1."""
    part.act(Leave(event.why))


def hear_left(part: Effects, event: SourceLeft) -> None:
    """Effect of rule C3 where a source's partition has moved to."""
    part.stir()
    part.ingress.hear_left((event.segment, event.partition), event.taken)


def is_capture(part: Effects, event: TransferFailed) -> bool:
    """It was no copy's state, but a capture: see `Backing.capture`."""
    return event.copy < 0


def _rules() -> Iterable[Rule[Effects]]:
    yield Rule("E5", Started, always, Effects.start, "every site is reachable, so epochs may open")
    yield Rule("E5", RowsArrived, guards.wants_rows, Effects.take_rows, "rows wait for the next epoch")
    yield Rule("E6", RowsArrived, guards.wants_none, Effects.ignore, "the run is drained: nothing is behind its last epoch")
    yield Rule("E5", RowsArrived, guards.has_failed, Effects.ignore, "the dataflow has failed; the rows were never recorded")
    yield Rule("C3", RowsArrived, otherwise, Effects.ignore, "the partition has moved away; its new leader reads them again")
    yield Rule("I2", BatchDone, guards.wants_rows, Effects.end_batch, "a whole Spark batch is here: its event times count")
    yield Rule("E6", BatchDone, guards.wants_none, Effects.ignore, "the run is drained; rows of the batch may not have been taken in")
    yield Rule("I2", BatchDone, guards.has_failed, Effects.ignore, "the dataflow has failed")
    yield Rule("C3", BatchDone, otherwise, Effects.ignore, "the partition has moved away; its new leader is told as well")
    yield Rule("E6", SourceEnded, guards.leads, Effects.end_source, "end of stream is watermark +inf")
    yield Rule("E6", SourceEnded, guards.has_failed, Effects.ignore, "the dataflow has failed")
    yield Rule("E10", EpochsGiven, guards.leads, Effects.note_epochs, "an epoch of which no more rows come may close")
    yield Rule("E10", EpochsGiven, otherwise, Effects.ignore, "the partition has moved away, or the dataflow has failed")
    yield Rule("C3", SourceEnded, otherwise, Effects.ignore, "the partition has moved away; its new leader finds out by itself")
    yield Rule(
        "J5", RowsStored, guards.leads, Effects.note_rows, "rows that nobody gives again are in the store, and wait for the next epoch"
    )
    yield Rule("J5", RowsStored, otherwise, Effects.ignore, "another site leads, or the dataflow has failed; the object is garbage")
    yield Rule("J5", RowsRead, guards.leads, Effects.take_again, "what is replayed is read from the store")
    yield Rule("J5", RowsRead, otherwise, Effects.ignore, "another site leads by now, and reads for itself")
    yield Rule("J5", RowsUnread, guards.leads, Effects.give_up_rows, "nothing else has these rows")
    yield Rule("J5", RowsUnread, otherwise, Effects.ignore, "another site leads by now, and reads for itself")
    yield Rule("E6", DrainRequested, always, Effects.drain, "a drained source has ended")
    yield Rule("C3", SourceLeft, always, hear_left, "what the former leader of a moved partition had taken in is read, drained or not")
    yield Rule("V3", Heard, guards.is_fenced, Effects.ignore, "nothing is accepted from a site that was declared dead")
    yield Rule("A2", Heard, guards.can_be_heard, Effects.hear, "frames, marks, acknowledgements, resumes and records of a peer")
    yield Rule(
        "V2",
        Heard,
        otherwise,
        Effects.hold_section,
        "a frame of a newer plan, or a word of a newer term, waits until that is known here",
    )
    yield Rule("A3", LinkUp, guards.peer_lives, Effects.resume_link, "what was under way on the old link is asked for again")
    yield Rule("V3", LinkUp, otherwise, Effects.ignore, "a site that was declared dead stays so")
    yield Rule("T2", LinkDown, guards.peer_lives, Effects.lose_link, "another replica is asked for what this peer fed")
    yield Rule("V3", LinkDown, otherwise, Effects.ignore, "nothing was expected from it")
    yield Rule(
        "V1", MembershipChanged, guards.newer_membership, Effects.change_membership, "the dead are dropped, successors lead, copies count"
    )
    yield Rule("V1", MembershipChanged, otherwise, Effects.ignore, "known already: a newcomer may be told twice")
    yield Rule("C3", StateArrived, always, Effects.install_state, "a copied cohort begins with the epoch after its state")
    yield Rule("K9", StatePartRead, always, Effects.restore_part, "some of the state that a cohort had at its base is taken in")
    yield Rule("K9", StateRead, always, Effects.restore, "a cohort that begins behind a base goes on from the state that it had there")
    yield Rule("K9", StateUnread, always, Effects.say_unreadable, "the run cannot begin like this: an older checkpoint may do")
    yield Rule("P2", TransferFailed, is_capture, lose_capture, "a capture has not come to its backup: the next one has it again")
    yield Rule("C4", TransferFailed, otherwise, Effects.give_up_copy, "the coordinator begins the copy again, from here or elsewhere")
    yield Rule("J2", TimerFired, guards.is_journal_timer, Effects.tell_journal, "what all live members hold goes to the journal")
    yield Rule("P6", TimerFired, guards.is_capture_timer, look_for_captures, "units that were not captured for long enough are")
    yield Rule("E5", TimerFired, otherwise, Effects.expire, "a deadline has passed")
    yield Rule("E2", WorkDone, guards.went_well, Effects.finish_work, "an epoch's frames go to their consumers")
    yield Rule("E3", WorkDone, guards.went_wrong, Effects.fail, "a box raised: the part stops and says so")
    yield Rule("E3", WorkDone, otherwise, Effects.ignore, "the dataflow has failed; results no longer matter")
    for answer in (Spilled, SpillFailed, Loaded, LoadFailed):
        yield Rule("M1", answer, guards.is_running, Effects.hear_disk, "state is on disk or in memory again, or is not")
        yield Rule("M1", answer, otherwise, Effects.ignore, "the dataflow has failed; its state no longer matters")
    yield Rule("M1", GiveUp, always, give_up, "its disk has lost state, and all runs outlive it")
    yield Rule("M1", StateMemoryChanged, always, Effects.hear_disk, "less state may be in memory, or more")
    yield Rule("K1", Checkpoint, guards.can_capture, Effects.begin_checkpoint, "captured when its epoch ends here; nobody waits for it")
    yield Rule("K6", Checkpoint, guards.is_beyond, Effects.refuse_checkpoint, "what it wants is gone: the next one is further ahead")
    yield Rule("K6", Checkpoint, guards.lacks_state, Effects.refuse_checkpoint, "not here, or not one with the others yet")
    yield Rule("K6", Checkpoint, guards.has_failed, Effects.ignore, "the dataflow has failed, or others have taken over")
    yield Rule("B2", BaseMoved, always, move_base, "what came up to there is never asked for again")
    yield Rule("K5", CheckpointCompleted, always, complete, "the next one has what is written from there on")
    yield Rule("B1", Revive, always, revive, "the state of a copy that has a base is read beside the loop")
    yield Rule("P1", BackUp, always, back_up, "units that are new begin with a whole capture")
    yield Rule("P2", CaptureArrived, always, take_capture, "it is pasted beside the loop, unless its site is dead or memory is short")
    yield Rule("P3", CapturePasted, always, paste, "the coordinator is told of which epoch it is")
    yield Rule("P3", ImagePasted, always, note_pasted, "frames up to there go, and the next capture has what changed since")
    yield Rule("P4", ReportImages, always, report_images, "its site is dead: pasted is what has come")
    yield Rule("P5", DropImages, always, drop_images, "a newer image has all of their partitions")
    yield Rule("K4", Written, always, note_written, "told when all is stored, in the store and by the sinks")
    yield Rule("K6", WriteFailed, always, give_up_checkpoint, "the run goes on without this checkpoint")
    yield Rule("O1", SinkCommitted, always, Effects.commit_sink, "the sink has stored the epochs")
    yield Rule("O2", SinkTook, always, Effects.give_way, "what a sink has planned to read is kept for it, and holds no room")
    yield Rule("J3", Durable, guards.newer_durable, Effects.open_ends, "a restart would make these epochs again: ends may take them")
    yield Rule("J3", Durable, otherwise, Effects.ignore, "known already: a newcomer may be told twice")
    yield Rule("V2", PlanProposed, guards.in_time, Effects.promise, "no epoch from it on till the answer; once what leaves is divided")
    yield Rule("V2", PlanProposed, otherwise, Effects.refuse, "the epoch is closed already: name it")
    yield Rule("V2", PlanCommitted, guards.new_plan, Effects.adopt, "the plan acts from its effective epoch on")
    yield Rule("V2", PlanCommitted, otherwise, Effects.ignore, "known already: a plan that was asked for may come twice")
    yield Rule("V2", PlanAborted, always, Effects.abandon, "the promise is over")


JUDGES: Final[dict[type, Judge[Effects]]] = {
    Heard: guards.of_heard,
    WorkDone: guards.of_work,
    RowsArrived: guards.of_rows,
    TimerFired: guards.of_timer,
}
RULES: Final[RuleTable[Effects]] = RuleTable(_rules(), judges=JUDGES)
