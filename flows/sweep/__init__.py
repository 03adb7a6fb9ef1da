"""A run of a sweep: begun, that is recorded and seeded; finished, that is indexed and counted."""
