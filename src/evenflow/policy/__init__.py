"""Policies: pure functions from statistics to proposals. No clock, no log, no effect; the protocol may refuse what they propose.

One file a policy, `catalogue` names them, `load` reads statistics for them, `proposal` is what they give, `serial` its JSON.
They know nothing of rounds, copies or sites' processes: only numbers, and who hosts what.
"""
