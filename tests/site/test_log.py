"""The log of an ingress partition: what leads, what follows, and whose word counts after a death (I1)."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from evenflow.exchange.section import Record
from evenflow.site.entered import Entered
from evenflow.site.log import PartitionLog


def record(epoch: int, *, term: int = 0, origin: int | None = None, taken: int | None = None, ended: bool = False) -> Record:
    taken = 10 * epoch if taken is None else taken
    return Record(0, 3, epoch, term, term if origin is None else origin, 1000 + epoch, 1000, taken, False, ended, None)


def led(epochs: int, term: int = 0) -> PartitionLog:
    log = PartitionLog(0, 3)
    for epoch in range(1, epochs + 1):
        log.append(record(epoch, term=term))
    log.lead()
    return log


def followed(epochs: int) -> PartitionLog:
    log = PartitionLog(0, 3)
    for epoch in range(1, epochs + 1):
        assert log.accept(record(epoch))
    return log


def origins(log: PartitionLog) -> list[tuple[int, int]]:
    return [(r.epoch, r.origin) for r in log.since(0)]


def test_a_follower_takes_records_in_order_and_each_once() -> None:
    log = followed(2)
    assert not log.accept(record(2))
    assert not log.accept(record(4)), "one was lost with a link; the leader sends it again"
    assert (log.end, log.matched, log.taken, log.stamp) == (2, 2, 20, 1002)
    assert log.accept(record(3))


def test_what_all_hold_can_be_emitted_and_no_more_than_is_confirmed() -> None:
    log = followed(3)
    log.settle(9)
    assert log.settled == 3
    log.settle(1)
    assert log.settled == 3, "what was safe once stays so"


def test_a_new_term_must_confirm_what_is_not_settled() -> None:
    log = followed(5)
    log.settle(2)
    assert log.new_term() == 2
    assert (log.end, log.matched) == (5, 2), "what is here is kept: the new leader may have the same"
    log.settle(5)
    assert log.settled == 2


def test_what_the_new_leader_confirms_is_kept_and_what_it_contradicts_is_forgotten_with_all_after_it() -> None:
    log = followed(5)
    log.settle(2)
    log.new_term()
    assert log.accept(record(3, term=1, origin=0))
    assert origins(log)[-1] == (5, 0)
    assert log.accept(record(4, term=1, origin=1, taken=33, ended=True))
    assert origins(log)[-2:] == [(3, 0), (4, 1)]
    assert (log.end, log.matched, log.taken, log.ended) == (4, 4, 33, True)


def test_what_was_cut_off_takes_its_rows_back_from_the_source() -> None:
    """A successor reads on where its log ends: the rows of forgotten epochs are read again."""
    log = followed(3)
    log.settle(1)
    log.new_term()
    log.accept(record(2, term=1, taken=11))
    assert (log.end, log.taken) == (2, 11)


def test_a_leader_needs_no_confirmation() -> None:
    log = followed(4)
    log.settle(2)
    log.new_term()
    log.lead()
    log.settle(4)
    assert log.settled == 4


def test_records_go_when_they_are_emitted_here_and_held_by_every_follower() -> None:
    log = led(5)
    log.settle(5)
    for epoch in (1, 2, 3):
        log.emitted(epoch, safe=2)
    assert [r.epoch for r in log.since(0)] == [3, 4, 5]
    log.drop(5)
    assert [r.epoch for r in log.since(0)] == [4, 5], "what was not emitted is kept, whoever holds it"
    assert (log.done, log.taken_done) == (3, 30)
    assert [r.epoch for r in log.since(4)] == [5]


def test_a_copied_log_begins_where_the_state_ends() -> None:
    log = PartitionLog.begun(0, 3, 7)
    assert (log.end, log.matched, log.settled, log.done) == (7, 7, 7, 7)
    log.begin(70, False, Entered().to_facts())
    assert (log.taken, log.taken_done) == (70, 70)
    log.accept(record(8))
    log.begin(70, False, Entered().to_facts())
    assert log.taken == 80, "records that came before the state know better"


class Replica:
    """A log and the site's word on how far it is sure, among three."""

    def __init__(self) -> None:
        self.log = PartitionLog(0, 3)
        self.emitted: list[tuple[int, int]] = []


@given(st.data())
def test_three_replicas_never_emit_different_epochs(data: st.DataObject) -> None:
    """Leaders cut, send prefixes, and die; the successor is any of the rest. Whatever anybody emits, all emit that."""
    alive, term, leader = [Replica() for _ in range(3)], 0, 0
    everybody = list(alive)
    lead = alive[leader]
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(["cut", "send", "emit", "die"]))
        if what == "cut":
            epoch = lead.log.end + 1
            lead.log.append(record(epoch, term=term, taken=lead.log.taken + data.draw(st.integers(0, 3))))
            lead.log.lead()
        elif what == "send" and len(alive) > 1:
            to = data.draw(st.sampled_from([r for r in alive if r is not lead]))
            for kept in lead.log.since(to.log.matched)[: data.draw(st.integers(0, 4))]:
                to.log.accept(kept._replace(term=term))
        elif what == "emit":
            sure = min(r.log.end if r is lead else r.log.matched for r in alive)
            for replica in alive:
                if replica is lead or data.draw(st.booleans()):
                    replica.log.settle(sure)
                while len(replica.emitted) < replica.log.settled:
                    taken = replica.log.record(len(replica.emitted) + 1)
                    replica.emitted.append((taken.origin, taken.taken))
        elif what == "die" and len(alive) > 1:
            alive.remove(lead)
            term += 1
            lead = data.draw(st.sampled_from(alive))
            for replica in alive:
                replica.log.lead() if replica is lead else replica.log.new_term()
    longest = max((replica.emitted for replica in everybody), key=len)
    assert all(replica.emitted == longest[: len(replica.emitted)] for replica in everybody)


def test_who_takes_over_a_partition_that_has_begun_anew_knows_it_until_an_epoch_was_closed_behind_that() -> None:
    """Its source stands further back: what comes of epochs up to there is of the first one behind (B4)."""
    log = PartitionLog.begun(0, 0, 5)
    log.begin(70, False, Entered().to_facts(), 200, [], 5)
    copy = PartitionLog.begun(0, 0, 5)
    copy.begin(*json.loads(json.dumps(log.facts_done())))
    assert (copy.anew, copy.taken) == (5, 70)
    log.append(record(6, taken=80))
    log.lead()
    log.settle(6)
    log.emitted(6, 6)
    later = PartitionLog.begun(0, 0, 6)
    later.begin(*json.loads(json.dumps(log.facts_done())))
    assert (later.anew, later.taken) == (-1, 80)
    assert len(log.facts_done()) == 5, "as it always was"
