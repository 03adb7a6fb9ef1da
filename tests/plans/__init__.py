"""Models, catalogs and plans for tests."""
