"""This computer, for tests: process ids that nobody has, small disks."""
