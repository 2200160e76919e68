"""python -m dualplan.cli"""

from dualplan.cli import main

main()
