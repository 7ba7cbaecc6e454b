"""Tests that mirror the packages; jobs, clusters, databases and devices have folders of their own."""
