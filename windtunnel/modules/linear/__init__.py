"""Linear and factored models, and what is built from them."""
