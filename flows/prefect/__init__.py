"""Showing a local sweep in Prefect: its server, flow runs, task runs and artifacts."""
