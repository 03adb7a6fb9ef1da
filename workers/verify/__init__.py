"""The verification of a package: the ladder, and the processes that run the models for it."""
