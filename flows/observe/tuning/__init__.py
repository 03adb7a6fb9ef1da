"""What came of tunings, for people and programs.

`document` gathers it from the record; the page, the Markdown and the JSON tell the same document.
Nothing in it is computed anew: gains and intervals are those that the verdicts rest on.
"""
