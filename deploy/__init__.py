"""Deploy: Prefect deployments, schedules, service files and pipeline files."""
