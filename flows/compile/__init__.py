"""Compiling packages ahead of time: into the feed, or into a folder."""
