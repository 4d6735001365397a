"""`python -m collections_store` is the command line `collections-store`."""

from .cli import main

if __name__ == "__main__":
    main()
