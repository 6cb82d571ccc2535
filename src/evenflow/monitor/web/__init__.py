"""The page of an engine, and its REST interface: a server for readers of scenes and readings, in a process of its own.

`feed` keeps what is newest and what was, encoded once for all readers; `guard` says who may ask; `server` has what every server here
has; `app` adds the paths of an engine's page, `editor` those of the editor; `serve` runs it all, and `crowd` keeps room
for who asks something.
Where readings come from, and who carries an operation out, is given to it: it knows no engine, no control port and no Spark.
`static/` has the page: plain modules for browsers, and in `static/vendor` what tools/vendor_ui.py has bundled.
"""
