"""Ingest of journals into the database."""
