"""What survives a loss: what a segment does for it (`mode`) and what an output can promise then (`guarantee`), the journal's `entries` and
what they add up to (`standing`), which checkpoints are kept (`retained`), and the `chain` of epochs by which who reads several regions of
a `group` misses none.

Values and pure functions only. Nothing here knows who appends an entry, where objects are, or when a checkpoint is due: that is the
coordinator's, the stores' and the worlds' business.
"""
