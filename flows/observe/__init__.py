"""What people see of a sweep: status, progress, causes of failures, differences, summaries."""
