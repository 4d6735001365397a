"""AEA's own error handler: AEA imports the module by the name in an agent's configuration, and so registers the storage.

error_handler:
  dotted_path: collections_store.integrations.aea.error_handler:ErrorHandler
  file_path: null
  config: {}
"""

from aea.error_handler.default import ErrorHandler

from .attaching import register

__all__ = ["ErrorHandler"]

register()
