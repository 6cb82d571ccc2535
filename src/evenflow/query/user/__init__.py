"""Functions of the user's in expressions: what they are, how they are called, and where their names are known.

`function` and `aggregator` are what a user gives, `formula` a text that calls them, `scope` where their names are known,
`calling` runs them, `binding` puts them into a box's parameters. It knows no box but by its parameters, and not who fails if one raises.
"""
