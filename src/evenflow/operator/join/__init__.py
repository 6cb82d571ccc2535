"""Joins: of two streams (`join`, with the rows that wait in `join_side`), and of a stream with a table (`table_join`).

`pairing` says which pairs of rows come out, and with which columns. Nothing here knows how rows of equal keys came to one partition.
"""
