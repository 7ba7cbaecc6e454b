"""Environment variables that configure a run, each named once."""

RUN_ID_VARIABLE = "ELASTICQA_RUN_ID"
"""The run a start works for: made when the run is submitted, and kept over restarts and requeues."""
