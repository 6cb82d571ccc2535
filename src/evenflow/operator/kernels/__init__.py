"""Compiled kernels: hashing, routing, the paged table's probe and fold, rings and sketches. `make setup` compiles them once."""
