"""The report: one HTML file that shows a sweep, opens from disk and asks no network for anything.

    state --collect--> Document (frozen, plain JSON) --page--> report.html

`collect` reads the state once; `timeline` and `savings` work out what it does not say by itself.
`page` puts the document, the style sheet and the scripts into one template (package data beside
this file). Nothing of a document becomes markup: the scripts set text, and a content security
policy with the digests of our own script and style lets nothing else run or load.
"""
