"""What holds for a state on whatever database: the classes run on SQLite and on PostgreSQL."""
