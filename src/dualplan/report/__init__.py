"""Reports: a saved run as one page that opens anywhere.

gather.py     the run, its model and policy; heuristics beside it
words.py      what was found, in sentences, and what is proved, measured and assumed
slices.py     decisions of policies on slices of the states, packed
pictures.py   figures, in light and dark
repeat.py     the command that repeats the run
page.py       all of it into page.html, with page.css and page.js
"""

from dualplan.report.page import write_report

__all__ = ["write_report"]
