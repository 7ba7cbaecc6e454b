"""Speed of the journal and the dashboard."""
