"""Where the machines run: on Spark (`spark`), and in a simulator (`sim`); what both have in common lies here.

A world has clocks, connections, threads and disks, and carries out what the machines decide. It decides nothing about a
dataflow, and knows no rule of the protocol.
"""

import logging
from typing import Final

from evenflow.kernels import ON_COMPILE

COMPILING: Final = "compiling kernels, once per machine and version: half a minute of CPU. Beforehand: python -m evenflow.kernels"

ON_COMPILE.append(lambda: logging.getLogger("evenflow").warning(COMPILING))
