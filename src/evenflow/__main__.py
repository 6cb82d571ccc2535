"""`python -m evenflow` is `evenflow`."""

from evenflow.cli import main

if __name__ == "__main__":
    main()
