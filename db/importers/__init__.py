"""Importers of results of other programs; each becomes a run of provenance `imported`."""
