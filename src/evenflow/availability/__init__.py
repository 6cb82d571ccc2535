"""What survives a loss: the journal's entries and what they add up to, and what a checkpoint is made of.

Values and pure functions only. Nothing here knows who appends an entry, where objects are, or when a checkpoint is due: that is the
coordinator's, the stores' and the worlds' business.
"""
