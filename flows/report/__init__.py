"""The report: one HTML file that shows a sweep, opens from disk and needs no network.

    state --collect--> document (plain JSON) --page--> report.html

`collect` reads the state once; `grid` and `timeline` derive the rest. `page` puts the
document, the style sheet and the scripts into one template (package data beside this file). No text
of a document becomes markup: the scripts only set text, and the content security policy lets
nothing run or load but our own script and style, named by digest.
"""
