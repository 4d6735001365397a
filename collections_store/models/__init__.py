"""Documents of a declared shape: classes whose instances are bodies, and schema versions with their upgrades.

Knows models of pydantic and msgspec, dataclasses, `TypedDict` and attrs, and the values of filters and indexes. Knows no
database. Begin with `codec`, how an instance becomes JSON and comes back, or with `upgrades`.
"""
