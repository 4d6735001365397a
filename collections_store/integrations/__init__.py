"""Adapters for other frameworks, one module or package a host.

An adapter knows the public API and its framework, and imports the framework when it is used. Must not hold logic
that other hosts could need. Begin with `opsdroid`, the smallest. `stores` opens and closes the store of an adapter, and
`sqlite_files` reads files of other programs.
"""
