"""How fast compiled pipelines are, beside their sources and other engines."""
