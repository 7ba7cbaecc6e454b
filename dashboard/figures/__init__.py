"""Functions from rows of the record to Plotly figures: pure, with a unit on every axis.

The browser adds the colours of its theme (`static/charts.js`).
"""
