"""Adapters of frameworks: a module or a package for each host.

An adapter uses the public API and a framework, and imports the framework on first use. Logic for several hosts does
not belong here. Begin with `opsdroid`, the smallest. `stores` opens and closes the store of an adapter;
`vectors` has the collection of a vector store; `sqlite_files` reads other programs' files.
"""
