"""`elasticqa doctor`: one module per subject; its check(environ) returns findings."""
