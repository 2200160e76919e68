"""Show it: a saved run as one page that opens anywhere, figures, maps and rules in words.

gather.py     the run, its model and policy; heuristics beside it
words.py      what was found, in sentences, and what is proved, measured and assumed
slices.py     decisions of policies on slices of the states, packed
pictures.py   figures of the page, in light and dark
repeat.py     the command that repeats the run
page.py       all of it into page.html, with page.css and page.js
figures/      every figure, for pages and files
policy_maps.py    what a policy does on two coordinates
rules/        policies as rules that people can read
"""

from dualplan.policies.rules import Rule
from dualplan.report import figures
from dualplan.report.page import write_report
from dualplan.report.policy_maps import PolicyMap, by_server, policy_map
from dualplan.report.rules import readable

__all__ = ["PolicyMap", "Rule", "by_server", "figures", "policy_map", "readable", "write_report"]
