"""Operations on a connection. No other package executes statements.

An operation is a value: called with a session, an operation builds and executes statements, decodes the rows and
returns the result. `operation` has the base class, with everything an executor may ask. This package must not know a
thread, an event loop or a store. Begin with `by_id`, then `find` and `write`.
"""
