"""The fleet: the loop of a local sweep in many processes on many machines.

The state decides who builds what (leases); Prefect starts, routes, shows and cancels.

    sweep --fleet ----> run in the state ----> parent flow run ----> slot flow runs
       launch              run                   parent                 slot: lease from the state
                                                 slot_runs: keeps
                                                 some waiting

    worker: Prefect's worker (worker_process), and a folder that tells its slots to drain
       (worker_folder)

`parent` and `slot` are plain functions; `entrypoints` turns them into flows. Only `entrypoints`,
`deployments`, `lead`, `slot_runs` and the page in `parent` import Prefect, and others through them.
A slot run that dies frees its worker slot, which takes the next waiting run, so no other process
has to react, and machines may join at any time.
"""
