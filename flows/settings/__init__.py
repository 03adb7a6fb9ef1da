"""The settings of a command: where each comes from, and what they select: folders, state, feed,
engines."""
