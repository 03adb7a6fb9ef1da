"""Finding the build that is best on a device, and proving it.

`knowledge.py` is what is known already: the findings that come with modelmill, those of the user's
own folder, and the evidence that tunings and onboardings appended to them. `policies.py` grades
sessions of measurements that were recorded elsewhere by the rules of the tools that recorded them;
`recorded.py` reads those records.
"""
