"""Speed of the dashboard and cost of recording steps."""
