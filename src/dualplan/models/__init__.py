"""Models: the contract, its forms, the named instances, and the check that a contract is kept."""
