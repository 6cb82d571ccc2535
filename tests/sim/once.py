"""A source of which every row is given once: the swarm's."""

from evenflow.swarm.kept_cases import SCHEMA, Once, OnceReader

__all__ = ["SCHEMA", "Once", "OnceReader"]
