"""Executes a notebook in Jupyter's kernel, and looks at what its cells show."""
import os
import sys

import nbclient
import nbformat
from nbformat.v4 import new_code_cell, new_notebook

book = new_notebook(cells=[new_code_cell(c) for c in (
    "import wattmark\nt = wattmark.task(1)\nt",
    "wattmark.tasks()",
    "t.samples().pandas().describe()",
)], metadata={"kernelspec": {"name": sys.argv[1], "display_name": "python"}})
nbclient.NotebookClient(book, timeout=120, kernel_name=sys.argv[1]).execute()
shown = [c.outputs[-1].data for c in book.cells]
assert "±" in shown[0]["text/html"] and "<svg" in shown[0]["text/html"] and "(k = 2)" in shown[0]["text/plain"], shown[0]
assert shown[1]["text/plain"].startswith("[<task 1 demo: "), shown[1]
assert "power_w" in shown[2]["text/html"] and "mean" in shown[2]["text/plain"], shown[2]
if len(sys.argv) > 2:
    nbformat.write(book, os.path.abspath(sys.argv[2]))
