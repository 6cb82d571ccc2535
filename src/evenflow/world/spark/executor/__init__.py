"""A site: the event loop of one long-running Spark task, and everything that a dataflow's part needs there.

`site_task` becomes a site, `site` is its loop, `links` its peers, `part_runner` one dataflow in it, `feeds` where rows come from,
`guests`, `held` and `shipping` who else takes or brings something. It knows no rule of the protocol:
those are in `evenflow.site`.
"""
