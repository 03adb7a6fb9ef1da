"""State: the only SQL. What happened to every cell of every sweep, and who holds which model.

An append-only `event` table is the record; a row per cell (`outcome`) is updated in the same
transaction, and CHECK constraints tie its status to its columns. SQLite in WAL mode by default,
PostgreSQL by URL, one schema, Alembic migrations run on open (a newer schema is refused).

Leases decide who builds what: a model is leased by one slot in all sweeps of this database,
with a heartbeat and a fencing token that only grows. Every write about a cell carries the token;
a token that is no longer the model's is refused (`LeaseLost`), so a late result of a lost worker
changes nothing. The clock of a lease is the database's; a local owner that is provably dead
(process gone on this host) loses its lease at once.

    open_state(path | url) --> State --+-- sweeps, seeding    what is to be done, what the feed has
      (ledger; migrate, database)      +-- leases, owner      who does it
                                       +-- recording          what came of it
                                       +-- queries, history   status, reports, estimates, explain

`schema` holds the tables, `records` what goes in and out, `transitions` which status may follow
which, `statements` what is executed for every cell (`prepared`: worked out once). A token is the
id of the event that records its lease: ids are never given out twice.

The room imports `matrix` and nothing else of ours.
"""
