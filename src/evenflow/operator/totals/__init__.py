"""Totals: the cells of aggregate calls, and the operators that keep them by key, by window of time, by session and by rows.

`totals` binds calls to cells, `text_totals` and `user_states` keep those that are Python objects, `merging` unites rows of totals.
`combine` makes partial totals before the exchange. Nothing here knows how rows of equal keys came to one partition.
"""
