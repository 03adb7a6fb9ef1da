"""Profiles and summaries as the sources of operator times write them."""
