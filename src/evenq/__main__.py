"""``python -m evenq``: the same as the command ``evenq``."""

from evenq.cli import main

if __name__ == "__main__":
    main()
