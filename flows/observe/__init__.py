"""What is seen of a sweep: status, progress, estimates, report, diff, summaries."""
