"""Policies: pure functions from statistics and the present hosting to a proposal."""
