"""CityHash64 (Pike and Alakuijala, 2011), in its version 1.0, by which CatBoost tells categories.

It is written for signed integers of 64 bits that wrap, in the subset of Python that TorchScript compiles.
"""

# TorchScript would take a comment on the line for a type.
# mypy: disable-error-code="attr-defined"

import torch

K0, K1, K2, K3 = -0x3C5A37A36834CED9, -0x4B6D499041670D8D, -0x651E95C4D06FBFB1, -0x36B62838AF619AA9
MULTIPLIER = -0x622015F714C7D297
"""The odd constants of the algorithm, all above 2^63, as signed numbers; TorchScript takes them as defaults only."""


def city_hash(text: str) -> int:
    """Hash a text as CatBoost does a category: the lower 32 bits of its CityHash64."""
    return city_hash_of_bytes(list(text.encode("utf-8")))


def city_hash_of_bytes(text: list[int]) -> int:
    """Hash the UTF-8 bytes of a text; the lower 32 bits."""
    return _city(text) & 0xFFFFFFFF


def signed(number: int) -> int:
    """Take the lower 32 bits as a signed number, as CatBoost combines them."""
    return (number + 2**31) % 2**32 - 2**31


def wrapped(number: int) -> int:
    """The number modulo 2^64, from -2^63 on; in TorchScript every integer is that."""
    if torch.jit.is_scripting():
        return number
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _shifted(number: int, by: int) -> int:
    """Shift to the right by 1 to 63 bits, with zeros from the left."""
    return (number >> by) & ((1 << (64 - by)) - 1)


def _turned(number: int, by: int) -> int:
    """All 64 bits turned to the right by 1 to 63."""
    return _shifted(number, by) | wrapped(number << (64 - by))


def _mixed(number: int) -> int:
    return number ^ _shifted(number, 47)


def _both(one: int, other: int, multiplier: int = MULTIPLIER) -> int:
    """Two numbers as one."""
    first = _mixed(wrapped((one ^ other) * multiplier))
    return wrapped(_mixed(wrapped((other ^ first) * multiplier)) * multiplier)


def _word(text: list[int], at: int, size: int) -> int:
    """Bytes as one number, the least first."""
    number = 0
    for place in range(size):
        number = number | (text[at + place] << (8 * place))
    return wrapped(number)


def _city(text: list[int]) -> int:
    if len(text) <= 16:
        return _up_to_16(text)
    if len(text) <= 32:
        return _up_to_32(text)
    return _up_to_64(text) if len(text) <= 64 else _beyond_64(text)


def _up_to_16(text: list[int], k2: int = K2, k3: int = K3) -> int:
    size = len(text)
    if size > 8:
        first, last = _word(text, 0, 8), _word(text, size - 8, 8)
        return _both(first, _turned(wrapped(last + size), size)) ^ last
    if size >= 4:
        return _both(size + (_word(text, 0, 4) << 3), _word(text, size - 4, 4))
    if size > 0:
        low, high = text[0] + (text[size >> 1] << 8), size + (text[size - 1] << 2)
        return wrapped(_mixed(wrapped(low * k2) ^ wrapped(high * k3)) * k2)
    return k2


def _up_to_32(text: list[int], k0: int = K0, k1: int = K1, k2: int = K2, k3: int = K3) -> int:
    size = len(text)
    a, b = wrapped(_word(text, 0, 8) * k1), _word(text, 8, 8)
    c, d = wrapped(_word(text, size - 8, 8) * k2), wrapped(_word(text, size - 16, 8) * k0)
    one = wrapped(_turned(wrapped(a - b), 43) + _turned(c, 30) + d)
    return _both(one, wrapped(a + _turned(b ^ k3, 20) - c + size))


def _up_to_64(text: list[int], k0: int = K0, k2: int = K2) -> int:
    size = len(text)
    start = wrapped(_word(text, 0, 8) + wrapped(size + _word(text, size - 16, 8)) * k0)
    one = _quarter(start, _word(text, 8, 8), _word(text, 16, 8), _word(text, 24, 8))
    start = wrapped(_word(text, 16, 8) + _word(text, size - 32, 8))
    other = _quarter(start, _word(text, size - 24, 8), _word(text, size - 16, 8), _word(text, size - 8, 8))
    mixed = _mixed(wrapped(wrapped(one[0] + other[1]) * k2 + wrapped(other[0] + one[1]) * k0))
    return wrapped(_mixed(wrapped(mixed * k0 + one[1])) * k2)


def _quarter(a: int, more: int, last: int, z: int) -> list[int]:
    b, c = _turned(wrapped(a + z), 52), _turned(a, 37)
    a = wrapped(a + more)
    c = wrapped(c + _turned(a, 7))
    a = wrapped(a + last)
    return [wrapped(a + z), wrapped(b + _turned(a, 31) + c)]


def _beyond_64(text: list[int], k0: int = K0, k1: int = K1) -> int:
    size = len(text)
    x, y, z = _word(text, 0, 8), _word(text, size - 16, 8) ^ k1, _word(text, size - 56, 8) ^ k0
    v = _weak(text, size - 64, size, y)
    w = _weak(text, size - 32, wrapped(size * k1), k0)
    z = wrapped(z + wrapped(_mixed(v[1]) * k1))
    x = wrapped(_turned(wrapped(z + x), 39) * k1)
    y = wrapped(_turned(y, 33) * k1)
    for at in range(0, (size - 1) // 64 * 64, 64):
        x = wrapped(_turned(wrapped(x + y + v[0] + _word(text, at + 16, 8)), 37) * k1) ^ w[1]
        y = wrapped(_turned(wrapped(y + v[1] + _word(text, at + 48, 8)), 42) * k1) ^ v[0]
        z = _turned(z ^ w[0], 33)
        v = _weak(text, at, wrapped(v[1] * k1), wrapped(x + w[0]))
        w = _weak(text, at + 32, wrapped(z + w[1]), y)
        x, z = z, x
    one = wrapped(_both(v[0], w[0]) + wrapped(_mixed(y) * k1) + z)
    return _both(one, wrapped(_both(v[1], w[1]) + x))


def _weak(text: list[int], at: int, a: int, b: int) -> list[int]:
    """32 bytes and two seeds as two numbers."""
    z = _word(text, at + 24, 8)
    a = wrapped(a + _word(text, at, 8))
    b = _turned(wrapped(b + a + z), 21)
    c = a
    a = wrapped(a + _word(text, at + 8, 8) + _word(text, at + 16, 8))
    b = wrapped(b + _turned(a, 44))
    return [wrapped(a + z), wrapped(b + c)]
