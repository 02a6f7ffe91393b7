"""YAML text with numbers such as 1e-3, without duplicate keys."""

from __future__ import annotations

import re
from typing import Any

import yaml

from windtunnel.errors import BadInput


class _Loader(yaml.SafeLoader):
    """A safe loader that converts 1e-3 to a number, and rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str, name: str) -> Any:
    """Parse a YAML text; ``BadInput`` with line and column if it is not valid."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # 2020-13-45 is taken for a date
        raise BadInput(f"{name} is not valid YAML: {' '.join(str(error).split())}") from error
