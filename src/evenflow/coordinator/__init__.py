"""What one run's driver decides: which site hosts what from which epoch on, who lives, and what becomes of it.

`machine` is the run's coordinator: by the table in `rules`, with what `effects` do to a run. Effects of single events are in `members`,
`plans`, `copies`, `balancing`, `checkpoints`, `appending` and `failure`; `rounds`, `versions`, `operations` and `collection` are decisions
of it. `fleet` knows the sites that several runs share, `detector` says who is dead. It knows no row of data, no clock, no connection and
not Spark: facts come in as `events`, and what is to be done goes out as actions.
"""
