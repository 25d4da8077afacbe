"""`python -m specref.cli` is `specref`."""

from specref.cli import main

if __name__ == "__main__":
    main()
