"""Replicas at distant sites: where they lie, which of the streams between them are worth their cost, which come back (HW 5.4).

`legs` says what runs between replicas and what it costs, `deploy` places replicas (P1), `discard` leaves out legs of little use (P2) and
`revive` brings some back (P3). Legs have no state, so a proposal about them can be carried out at once; that a replica begins or ends is
advice. All this knows no run and no clock, only rates, latencies and how late things came.
"""
