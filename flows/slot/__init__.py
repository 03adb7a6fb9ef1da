"""The loop of a worker slot: lease a model, build, verify, publish and record its cells."""
