"""Pages, figures, API and security of the dashboard."""
