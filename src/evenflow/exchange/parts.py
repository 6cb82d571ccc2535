"""A section in parts: much has to be said again over a new link, or an epoch's rows are many.

What is said in one message is heard at once, and some of it only means something together. So whoever says a thing in several messages
has to know what: this file does. It knows nothing of how messages travel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from evenflow.exchange.section import Bundle, Record, Section, Settled

MESSAGE_BYTES_GOOD: Final = 128 << 20
"""About the most that is said in one message if it can be said in several."""


def bytes_of_record(record: Record) -> int:
    return int(record.rows.nbytes) if record.rows is not None else 0


def in_parts(section: Section, most_bytes: int = MESSAGE_BYTES_GOOD) -> Iterator[Section]:
    """The section as several that mean the same when they come in this order, each of at most about `most_bytes` or of one run of rows.

    Bundles and records keep their order; marks, which say that bundles have come, and all else are in the last one. What a leader has
    settled is also with the first of the partition's records: a follower that has asked goes by both (I1), for it is what says that the
    records before that first one need not come, and without it none of them follows what the follower holds.
    """
    settled: dict[tuple[int, int], list[Settled]] = {}
    for word in section.settled:
        settled.setdefault((word.segment, word.partition), []).append(word)
    part, part_bytes = Section(), 0
    runs: list[tuple[int, Bundle | Record]] = [(bundle.size, bundle) for bundle in section.bundles]
    runs += [(bytes_of_record(record), record) for record in section.records]
    for size, run in runs:
        if part_bytes and part_bytes + size > most_bytes:
            yield part
            part, part_bytes = Section(), 0
        if isinstance(run, Bundle):
            part.bundles.append(run)
        else:
            part.records.append(run)
            part.settled += settled.pop((run.segment, run.partition), ())
        part_bytes += size
    yield Section(part.bundles, section.marks, section.resumes, part.records, section.held, section.settled, section.ack)
