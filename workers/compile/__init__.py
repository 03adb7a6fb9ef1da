"""Compile: ONNX models become EPContext models, which a device opens without compiling them.

    files | built stages --> group --> runtime host (compile) --> contexts (checked) --> outputs

A **group** is what one compilation takes: one model, or several that share one context, in a given
order, for one profile. The EP writes a context model for each member and one binary for all of
them. The binary is complete only after the last member, so a group with a failing member is
thrown away, the member is named, and the rest is compiled again from the start.

Compilers run in the host process of their kind of runtime (`workers.runtimes.compile`), inside a
private folder and by relative paths, so that equal inputs give equal bytes wherever they are. The
name of a binary carries the beginning of the digest of everything that made it: a new compilation
never writes into a binary that somebody has open, and a context model that is moved into place
last always finds its own.

`devices` chooses the runtime of a profile and says what a result depends on. `group` compiles, for
`stage` (packages) as for `files` (plain ONNX files into a folder). What a context model refers to
is read in the checker's process.
"""
