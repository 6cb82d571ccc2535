"""One file for each figure or table of a paper that is tried here; `..._on_spark` the same on real executors.

Each says what the paper saw, what it tries, and what must be reached. They know nothing of each other, and not how a result is shown.
"""
