"""One file per page, with the routes of the page and of its figures: query the record, then render a template."""
