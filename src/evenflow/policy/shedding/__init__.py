"""What is left out under overload, so that what is delivered is worth most (BO 4, HW 2.3).

`network` has the flow that is asked about: sources, boxes with what a row costs them, arcs, outputs and what they are worth. `flow`
solves it as a linear program, by `highs`, and knows its loads. `regions` and `fit` plan in advance, as the paper does; `fill` raises what
a table gives to what there is still room for; `alternatives` is the paper's
table 1. They are pure, as all policies, and know nothing of epochs, or of who drops a row.
"""
