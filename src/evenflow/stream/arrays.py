"""Types of NumPy arrays, by what is in them. Shapes are said where they are used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
UInt64s = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]
