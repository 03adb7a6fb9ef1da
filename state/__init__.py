"""State: the only SQL. What happened to every cell of every sweep, and who holds what.

An append-only `event` table is the record; a row per cell (`outcome`) is updated in the same
transaction, and CHECK constraints tie its status to its columns. SQLite in WAL mode by default,
PostgreSQL by URL, one schema, Alembic migrations run on open (a newer schema is refused).

Leases decide who builds what. One covers the cells of a model that need the same of a machine, and
a slot is given only what its machine can do; two sweeps never hold the same model at once. A lease
has a heartbeat and a fencing token that only grows. Every write about a cell carries the token; a
token that is no longer current is refused (`LeaseLost`), so a late result of a lost worker changes
nothing. The clock of a lease is the database's; a local owner that is provably dead (its process
is gone on this host) loses its lease at once.

    open_state(path | url) --> State --+-- sweeps, seeding    what is to be done, what the feed has
      (state; database)                +-- leases             who does it
                                       +-- recording          what came of it
                                       |
    read_state(path | url) --> StateReader
      (reading; file)                  +-- queries, history   status, reports, estimates, explain
                                       +-- measurements       benchmarks, and what is to measure
                                       +-- tunings            trials of other builds

`schema` holds the tables and `statements.sql` everything that changes them: two pages that tell the
whole protocol. `records` is what goes in and out, `transitions` which status may follow which,
`changes` what happens to many cells at once. Both pages, and all queries, are SQL that SQLite and
PostgreSQL share; `sql` knows the few words that they write differently. Writing goes through
`Database.attempt`, which repeats it after a lost race and, with `Patience`, through an outage.
Reading goes through whatever answers `Rows.fetch`: the `Database`, or a `StateFile`, which loads
neither SQLAlchemy nor SQLModel, so that `modelmill status` answers at once. `rows` makes records of
what comes back. A token is the id of the event that records its lease: ids are never given out
twice.

The room imports `matrix` and `machine`, nothing else of ours.
"""
