"""Policies: pure functions from statistics to proposals. No clock, no log, no effect; the protocol may refuse what they propose."""
