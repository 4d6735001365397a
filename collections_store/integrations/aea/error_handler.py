"""AEA's own error handler: naming it in an agent's configuration has AEA know our storage.

error_handler:
  dotted_path: collections_store.integrations.aea.error_handler:ErrorHandler
  file_path: null
  config: {}
"""

from aea.error_handler.default import ErrorHandler

from .attaching import register

__all__ = ["ErrorHandler"]

register()
