"""One file for each figure or table of a paper that is tried here; `..._on_spark` the same on real executors."""
