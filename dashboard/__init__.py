"""Web pages and a JSON API on the database of runs: FastAPI, Jinja templates and Plotly figures.

To add a page: one route file in `routes/`, one template in `templates/`, one function in `figures/` if it has a chart,
and the route file's name in the list of routers in `app.py`. The navigation bar is in `templates/base.html`.
"""
