"""What a user asks for: boxes and arrows, drawn by methods or written in SQL, checked, and cut into segments.

`builder` is the user's hand, `network` what it draws, `kinds` the kinds of boxes, `sql` expressions, `script` whole queries
in SQL, `ported` queries of Spark's, `user` the user's functions; `planner` makes a layout of it, `text` and `draw` show it.
It is a description. It knows no site, no replica and no epoch, and not how an operator computes.
"""
