"""The build matrix: pure data and the rules that turn it into a plan.

A catalog (models) and the target table (one EP on one device each) are crossed, filtered
and checked here, and become a `Plan` of frozen dataclasses: every cell with its version,
its package and the policy that will really be applied. All errors of a sweep's input are
found here, all at once, before anything is built.

Nothing in this room does any I/O but reading its own data files and the catalog it is
given; the environment, the clock and the current folder are passed in. It imports none of
our other rooms, and all of them may import it: besides the plan it holds the few words that
every room needs (statuses, failure classes, digests, the base of all errors).

    catalog.toml | registry.json --> Model --+
                                             +--> Cell (id, policy, package, version) --> Plan
    data/targets.toml ------------> Target --+
"""
