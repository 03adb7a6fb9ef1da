"""A deterministic simulation of sweeps whose machines, database and feed fail.

One thread, one seed, a virtual clock. The code under test is the product's own: beginning and
seeding a sweep, leases and their renewal, the loop of the slots, recording, publishing, the index
and the store. What surrounds it is simulated: time, and machines whose processes are killed or
stopped for a while (`world`); a database that is away or whose reply is lost after a commit, and a
feed that loses requests and replies and lists late (`services`); disks that lose what was not
synced (`disks`); and the stages that fill the store (`building`).

Processes take turns only where the real ones could: where they wait, and before and after each
call of database, feed and disk. `run` lets one seed happen, `rules` says what must hold at every
step and at the end:

- each version is published once, with the content that its cell must have, and recorded with it
- a model has one holder, and tokens of leases never fall
- nobody records anything under a lease that was handed to another
- no model is set aside unless its own processes died, and never while its versions are in the feed
- the feed lists what the index lists, and the end is reached

`mutants` breaks the product in one place at a time and names the seed that finds it. A race that
is repaired becomes a seed in `test_seeds` or a mutant.

    python -m tests.simulation SEED            the log of one seed
    python -m tests.simulation FIRST LAST      the seeds that break a rule
    python -m tests.simulation --mutants N     which of the first N seeds finds each mutant
"""
