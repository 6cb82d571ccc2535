"""What runs, where, and who lives: the words in which coordinator and sites agree.

`layout` says what runs, `ranges` which partition owns which keys, `plan` who hosts what from which epoch on, `membership` who lives now,
`placement` where everything lies at the start. Nothing here knows how a query is written, what an operator computes, or who decides.
"""
