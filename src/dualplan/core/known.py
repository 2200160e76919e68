"""How a number is known, in one word."""

PROVED = "proved"  # follows from the model; where draws are in it, with the stated probability
COMPUTED = "computed"  # over all states or pairs
MEASURED = "measured"  # computed or simulated for the very policy in question
ESTIMATED = "estimated"  # from draws, without an interval
STATISTICAL = "statistical"  # of what was looked at, which is not everything
ASSUMED = "assumed"  # rests on what the user gave
UNKNOWN = "unknown"
