"""The plan of a sweep: from the catalog, or as it was recorded; what it needs and will take."""
