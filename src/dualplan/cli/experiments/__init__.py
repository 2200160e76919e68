"""Published experiments, run again: `dualplan reproduce NAME`, one experiment a file.

rows.py           a figure of ours beside one from elsewhere, and when an experiment fails
measure.py        rows by simulation, by exact evaluation and by search
picture.py        rows as dots with intervals
experiments.py    the list of experiments, their options, and the folder that results are saved in

Figures from elsewhere stand beside ours and enter no computation.
"""
