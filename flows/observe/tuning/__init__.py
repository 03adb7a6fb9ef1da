"""What came of tunings, for people and programs.

`document` gathers it from the record; the page, the Markdown and the JSON tell the same document.
It computes nothing itself: its gains and intervals are those that the verdicts rest on.
"""
