"""What every test needs to know about warnings of other libraries."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    # category_encoders 2.11 sets an option that pandas 3 has deprecated, in fit and transform alike.
    config.addinivalue_line("filterwarnings", "ignore:'future.no_silent_downcasting' is deprecated")
