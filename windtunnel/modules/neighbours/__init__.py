"""Nearest rows, distances and what is predicted from them."""
