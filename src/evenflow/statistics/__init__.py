"""What sites did, as numbers: `window` of one site in a window of time, `statistics` of all sites together, `recent` the last
minutes of a run, `totals` the sums of its last seconds, `growing` those of all its time, `standing` how far sites are, `histogram`
latencies, `serial` their JSON; `progress` how a run goes, `moves` its moves, `plain` values as JSON and back.

Everything here is a value. It knows no clock, no plan and no policy, and not how the numbers were measured.
"""
