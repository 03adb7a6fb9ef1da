from __future__ import annotations

from flows.output.table import markdown_table

HOSTILE = "a|b\n<script> [x](http://y) **bold** `code` # head"


def test_a_text_in_a_table_is_no_markup() -> None:
    *_, row = markdown_table(["text"], [[HOSTILE]])
    assert row == (r"| a\|b \<script\> \[x\](http://y) \*\*bold\*\* \`code\` \# head |")
