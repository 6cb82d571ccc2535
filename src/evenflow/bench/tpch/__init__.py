"""TPC-H's 22 queries as maintained views over inserts, updates and deletes, compared with batch Spark after every tenth.

What lives here: the queries' texts, the changes of their tables, and who runs and compares them. Who runs a query knows nothing of what it
asks.
"""
