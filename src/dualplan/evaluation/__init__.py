"""What a policy costs, and what any policy costs at least."""
