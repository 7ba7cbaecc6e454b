"""A run directory in one file: written by `elasticqa export`, put back under its run id by `elasticqa import`."""

from db.bundle.export import export_run
from db.bundle.manifest import BundleError
from db.bundle.restore import Restored, import_bundle

__all__ = ["BundleError", "Restored", "export_run", "import_bundle"]
