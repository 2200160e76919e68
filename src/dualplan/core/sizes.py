"""How many states are few: limits that several parts share, so that they agree on what is exact and
what is sampled.
"""

# states up to which a policy's law and cost are computed, unless told otherwise: seconds
EXACTLY = 20_000
LISTABLE = 2_000_000  # states up to which all of them may be gone through at all: minutes
