"""Responses: pages from templates, figures as JSON, error pages, and the addresses of static files."""
