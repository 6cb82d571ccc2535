"""A buffer per key from which the least goes when it is full."""

from __future__ import annotations

import numpy as np

from evenflow.kernels.columns import Words
from evenflow.kernels.jit import kernel


@kernel("int64(int64[::1], int64[::1], int64, int64[::1], int64[::1])")
def replace_least(rank: Words, starts: Words, size: int, least: Words, trigger: Words) -> int:
    """Put each key's rows into a buffer; whenever it holds `size` rows the least leaves. Returns how many left.

    rank: int64 (n,), distinct, the rows of a key one after the other. starts: int64 (k + 1,), where each key's begin. least, trigger:
    int64 (n,), written: the rank of each row that left, and the row that made it leave.
    """
    heap = np.empty(size, np.int64)
    found = 0
    for key in range(starts.size - 1):
        held = 0
        for row in range(starts[key], starts[key + 1]):
            at = held
            held += 1
            value = rank[row]
            while at > 0 and heap[(at - 1) // 2] > value:
                heap[at] = heap[(at - 1) // 2]
                at = (at - 1) // 2
            heap[at] = value
            if held < size:
                continue
            least[found] = heap[0]
            trigger[found] = row
            found += 1
            held -= 1
            value = heap[held]
            at = 0
            while 2 * at + 1 < held:
                child = 2 * at + 1
                if child + 1 < held and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= value:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = value
    return found
