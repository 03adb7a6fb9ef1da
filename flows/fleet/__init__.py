"""The fleet: the loop of a local sweep in many processes on many machines.

The state decides who builds what (leases); Prefect starts, shows, routes and cancels.

    sweep --fleet --> ticket in the state --> parent flow run --+--> slot flow runs that lease
      (launch)          (ticket)               (parent)         |    from the state (slot)
                                                                +--> crew: keeps some waiting
    worker --> Prefect workers (worker_process) --> run the flow runs; folder of orders for draining

`parent` and `slot` are plain functions; `entrypoints` makes flows of them and is, with `crew`,
`deployments` and `launch`, all that knows Prefect here. A slot run that dies frees its worker slot,
which takes the next one that waits: nobody has to notice, and machines may join at any time.
"""
