"""The meaning of Spark SQL expressions over Arrow arrays: nodes, types and casts, operators, functions.

`parser` reads texts, `walker` makes nodes of them by the catalogue in `functions`, the rest says what a node gives for
a batch. It knows no box, no query around an expression, and not where rows come from.
"""
