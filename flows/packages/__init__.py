"""What is done with existing packages: verify, compile, measure, trace, promote, sign, rebuild.

`measured` finds what a user names to be measured, `keeping` records the result in the state, and
`promotion` lets a version into a view if its verification, or its champion, allows it.
"""
