"""The vocabulary that everybody may use: epochs, columns and their types, rows, changes, and Arrow's bytes.

`epoch` says what an address is, `schema` types as text, `rows` and `values` rows of Python, `change` what a row of a
changelog does, `ipc` batches as bytes, `taking` rows at places, `digest` by what bytes are known again, `arrays` types of arrays,
`ids` numbers by what they count. It knows nothing of the rest of the package but its errors.
"""
