"""The paper's experiments (section 5.4), tables 5.3 to 5.6, on whatever data is given."""
