"""Stand-ins that behave like the real thing, and misbehave when a test asks for it."""
