"""The fixtures that scenarios share. No session: it would be the second one in this process."""

from tests.worlds.conftest import gate, named

__all__ = ["gate", "named"]
