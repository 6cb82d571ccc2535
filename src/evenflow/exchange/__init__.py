"""Between producers and consumers of a stream: where a row goes, what is kept until it is needed no more, what is still missing.

`routing` and `dealing` divide rows, `section`, `parts` and `outbox` send them, `retention` keeps frames until their readers have
them, `inbox` puts frames in order, `credit` grants room; `rules` are their tables. It knows neither operators nor state,
nor why a site is dead or a plan was changed.
"""
