"""Functions of the user's in expressions: what they are, how they are called, and where their names are known."""
