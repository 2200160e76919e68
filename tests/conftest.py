import hypothesis

hypothesis.settings.register_profile("dualplan", deadline=None, derandomize=True, max_examples=60, print_blob=True)
hypothesis.settings.load_profile("dualplan")
