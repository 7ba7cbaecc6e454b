"""One file per page: query the record, then render a template or return a figure as JSON.

A page file holds the page's route and, if the page has a chart, the route of its figure below /figures. `api.py`
returns the same facts as JSON, `dependencies.py` is what FastAPI passes to a route.
"""
