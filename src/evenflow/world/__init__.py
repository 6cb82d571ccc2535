"""Where the machines run: on Spark, and in a simulator."""

import logging
from typing import Final

from evenflow.kernels import ON_COMPILE

COMPILING: Final = "compiling kernels, once per machine and version: half a minute of CPU. Beforehand: python -m evenflow.kernels"

ON_COMPILE.append(lambda: logging.getLogger("evenflow").warning(COMPILING))
