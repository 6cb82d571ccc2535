"""Boxes over results that change: what they put out can be taken back, row by row, and so can what comes in.

`by_key` keeps each distinct row of a key once, with how often it is there, in a paged table with a list of rows by key beside it; `columns`
says where in a row of the table its values lie. `pairs` joins two sides, `regroup` makes totals anew that cannot be subtracted, `rank`
places rows in an order. What they are told are descriptions, which the query draws (`query.changing`, `query.regrouped`, `query.ranked`).
Nothing here knows SQL.
"""
