"""Words that every room uses: errors, statuses, types, checks of input, seeds, intervals, runs in
folders.
"""
