"""What people see of a sweep (status, progress, estimates, report, diff, summaries), of
measurements, traces and tunings."""
