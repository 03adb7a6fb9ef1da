"""Real local services that tests talk to."""
