"""Onboarding: turns a model into a catalog entry with proof, which a review checks elsewhere.

    CATALOG --coverage-->          which entries build, and what the others need
    MODEL --probe--> effort        what it takes: an entry, an exporter of ours, more
          --climb--> goals L0..L3  build, latency, numbers, task metric; each with a verdict
          --write--> FOLDER        record, report, entry, evidence, packages, draft finding

    FOLDER --review--> approve, request changes or reject

`coverage` answers before anything is downloaded: `matrix.coverage` judges each entry by its model
type and task, and by its config.json if that is on this machine (in a folder or in the Hub cache),
because config.json is more reliable about the architecture than the catalog. It needs no network,
no exporter and no torch.

`onboarding` is one onboarding from end to end: `entry` makes the catalog entry, `coverage` says how
much work the model is, `goals` has the tiers and their closed set of verdicts. A tier that fails
prevents higher tiers from running, one that is blocked does not, and one that was not run is never
shown as passed. `climb` runs the tiers with the ordinary engines, runtimes and rungs of
verification. `folder` is the record of an onboarding: the nine items of its report, which it also
writes for people, and every other file by its digest.

`review` trusts nothing in a folder. It compares every file with its digest, onboards the model
again into a temporary folder, and reports every difference of the two records. Where it cannot
check something, it requests changes instead of approving.
"""
