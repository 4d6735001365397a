"""Documents of a declared shape, and how it changes: schema versions and upgrades.

Knows bodies and the functions that convert them, no database. Begin with `upgrades`: a declaration, and what it makes of a
stored body.
"""
