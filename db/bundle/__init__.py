"""Bundles: a run directory in one file, written by `elasticqa export` and restored by `elasticqa import`."""

from db.bundle.export import export_run
from db.bundle.manifest import BundleError
from db.bundle.restore import import_bundle

__all__ = ["BundleError", "export_run", "import_bundle"]
