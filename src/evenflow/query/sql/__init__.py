"""The meaning of Spark SQL expressions over Arrow arrays: nodes, types and casts, operators, functions."""
