"""AEA's own error handler: AEA imports it by its name in an agent's configuration, which registers the storage.

error_handler:
  dotted_path: collections_store.integrations.aea.error_handler:ErrorHandler
  file_path: null
  config: {}
"""

from aea.error_handler.default import ErrorHandler

from .attaching import register

__all__ = ["ErrorHandler"]

register()
