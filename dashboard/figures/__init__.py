"""Rows in, Plotly figures out; pure, with a unit on every axis. The page adds the colours of its theme."""
