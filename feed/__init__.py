"""Feeds: the only code that talks to where packages are published.

A feed holds immutable versions of named packages. This room has one small interface
(`interface.Feed`), its implementations (`directory` is the default), the `publisher` that
makes publishing safe to repeat on any of them, and the reader side (`pull`).

The order never changes: publish -> read back -> only then may anybody record "published".
`VersionExists` and `OutcomeUnknown` are not failures but questions. Comparing tree digests with
the feed answers them: equal is published, different is a conflict, absent is tried again.
A listing is complete or it is an error; it is never silently short.
"""
