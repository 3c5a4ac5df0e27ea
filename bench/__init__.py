"""Measurements, each a module that prints a table: ``python -m bench.columns``."""
