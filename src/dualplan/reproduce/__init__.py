"""Published experiments, run again: `dualplan reproduce NAME`, one experiment a file.

Published figures stand there as text beside ours and enter no computation.
"""

EXPERIMENTS = ("dual-mixing", "four-queue", "figure-3")
