"""Web pages and a JSON API on the database of runs: FastAPI, Jinja templates and Plotly figures."""
