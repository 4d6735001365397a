"""What is done on a connection: the only package that executes statements.

An operation is a value that is called with a session and returns a result: it builds its statements, executes them
and decodes the rows. `operation` has the base class, with all that an executor may ask of one. This package must not know
a thread, an event loop or a store. Begin with `by_id`, then `find` and `write`.
"""
