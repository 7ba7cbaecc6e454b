"""Pages of the dashboard in Chromium."""
