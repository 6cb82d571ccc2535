"""Write docs/protocol.md from the rule tables of the machines, or check that it is current.

python tools/gen_protocol_docs.py           # write it
python tools/gen_protocol_docs.py --check   # exit code 1 if it is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from evenflow.coordinator.rules import RULES as COORDINATOR
from evenflow.site.rules import RULES as PART
from evenflow.swarm.within import WITHIN

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"

SUBJECTS = {
    "E1-E8": "epochs and frames: keys, input order, determinism, messages, when epochs close, time, order across a re-key",
    "E9-E11": "cuts by content: what decides the epoch of a row, promises, stamps",
    "A1-A5": "retention, acknowledgements, feeding, duplicates, admission by epoch",
    "A6-A6": "admission where sources are cut by content",
    "V1-V4": "membership (acts on receipt), the plan (acts from an epoch on), fencing, links",
    "T1-T3": "a death: suspicion, take-over, where replicas lie",
    "C1-C6": "copies of state: catch-up of lost replicas, moves",
    "I1-I3": "ingress: leaders and followers, what forms an epoch, rows pushed by Spark, what a restart cuts again",
    "I4-I4": "ingress where sources are cut by content: no leader, no followers",
    "O1-O2": "egress and sinks",
    "S1-S2": "state: pages, and what user code keeps",
    "M1-M2": "state beyond a site's budget, on its disk; modes of availability that change while a run goes on",
    "B1-B3": "what begins again from a base where only a dead site had it, what is kept for that, and who waits for what nobody has",
    "B4-B4": "what begins anew with nothing where nobody has it any more, and what is counted of the loss",
    "P1-P6": "units, their captures, and the images of them at other sites",
    "J1-J5": "the journal of a run with a checkpoint location",
    "K1-K14": "checkpoints, and a restart at one",
    "D1-D2": "which rows are left out under overload, and who decides",
    "D3-D3": "what plans leave out within a dataflow, and where",
    "D4-D4": "which windows come where rows were left out",
    "D5-D6": "what is told of them, and when none are",
}
"""Ids of rules, first and last, and what they are about."""

TEXT = """\
# Protocol: the rules of the machines

This page is generated from the code by `tools/gen_protocol_docs.py`; a test holds it current. The machines are sans-IO: events in,
actions out, no clock, no socket, no thread. For each event exactly one rule is enabled; none or two is a bug and raises an error that
tells what the machine went through. The same machines run on Spark executors and in the simulator.

A rule's id groups what belongs together:

{subjects}
Some of them need an explanation before the tables can be read:

- **E2**: a partition consumes epoch e when it holds e's frame from every producer partition, once, in producer order. A site says in one
  mark per stream and epoch that nothing more comes from it.
- **A5**: room is granted by epoch. The oldest unfinished epoch is always admitted; only an ingress ever waits.
- **A1-A3**: a producer keeps every epoch until all live replicas of its consumers have acknowledged it. Who feeds whom is the
  consumer's choice, taken back at any time: it asks a live replica of the producers for a stream from an epoch on (a *resume*).
- **V1**: only the coordinator declares a death, and its word acts when it is heard. **V3**: a site index is never used twice, so what a
  dead site says is dropped for ever.
- **V2**: a plan is proposed beyond every epoch seen, promised by every site, then committed or proposed again later.
- **I1**: the leader of an ingress partition sends each epoch's record to its followers; nobody emits an epoch before all live members
  hold its record. The term of a leader is the number of the membership that made it one.
- **C1-C4**: a copy's partitions are fed from the plan's first epoch on, get the state as of the epoch before it, catch up, and count as
  replicas when the coordinator says so. A copy that fails in any way is forgotten and begun again.

What an event and an effect are in detail stands with their classes: `evenflow/site/events.py`, `evenflow/site/effects.py`,
`evenflow/coordinator/events.py`, `evenflow/coordinator/effects.py`. Why they are as they are: [decisions](decisions/README.md).

## A dataflow's part on a site

{part}
After every event, in this order and until nothing follows any more: the ingress closes epochs that are due and allowed, copied
partitions that are live join the site's own where both have finished the same epoch, partitions process epochs that are complete (and
hand their state to copies where it is due), the part finishes, and copies that are level are reported.

## The coordinator's machine of a run

{coordinator}
## Rules that act within these effects

Some rules are not about one event: they hold whenever anything changes. Each of them is one function, below `evenflow/`, and a rule that
has rows as well may be here too.

{within}"""


def ids() -> list[str]:
    """Every rule of the protocol."""
    spans = [(span[0], *[int(end[1:]) for end in span.split("-")]) for span in SUBJECTS]
    return [f"{letter}{number}" for letter, first, last in spans for number in range(first, last + 1)]


def subjects() -> str:
    lines = ["| ids | subject |", "| --- | --- |"]
    for span, subject in SUBJECTS.items():
        first, last = span.split("-")
        lines.append(f"| {first if first == last else span} | {subject} |")
    return "\n".join(lines) + "\n"


def within() -> str:
    lines = ["| rule | function | what it sees to |", "| --- | --- | --- |"]
    lines += [f"| {rule.id} | `{rule.where}` | {rule.why} |" for rule in WITHIN]
    return "\n".join(lines) + "\n"


def document() -> str:
    """The whole text of docs/protocol.md."""
    return TEXT.format(subjects=subjects(), part=PART.as_markdown(), coordinator=COORDINATOR.as_markdown(), within=within())


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        if DOCUMENT.is_file() and DOCUMENT.read_text(encoding="utf-8") == document():
            return 0
        print(f"{DOCUMENT.name} is out of date: run python tools/gen_protocol_docs.py", file=sys.stderr)
        return 1
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
