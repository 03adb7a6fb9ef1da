"""The verification ladder: compares what was observed of a package with what its cell claims.

Pure: `claim` holds the claim, `observed` the answers of inspection and runtimes; each rung is a
function of the two, and `levels` sums them up. Nothing is run or read here.
"""
