"""State of partitions: where rows lie in memory, how one partition of it is captured, and how it travels.

`pages` is a table of keyed rows in pages (protocol S1), `arena` its memory, `index_growth` its growing index, `page_snapshot` one
partition of it as captured. `held_rows` has rows that wait, `keys` key columns, `deadlines` what falls due. `transfer` makes one
sequence of bytes of several operators' snapshots (C2). Nothing here knows what an operator computes, or who asks for a copy.
"""
