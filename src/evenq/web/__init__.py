"""Room for the dashboard and the metrics."""
