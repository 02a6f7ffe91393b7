"""MD5 (RFC 1321) in the subset of Python that TorchScript compiles, for the buckets of hashing encoders."""

import math


def bucket_of_bytes(text: list[int], buckets: int) -> int:
    """The md5 of a text's UTF-8 bytes as one integer, modulo the number of buckets (below 2^54)."""
    remainder = 0
    for word in md5_words(text):
        for byte in range(4):
            remainder = (remainder * 256 + ((word >> (8 * byte)) & 255)) % buckets
    return remainder


def md5_words(text: list[int]) -> list[int]:
    """The digest as four words of 32 bits, each with its least significant byte first."""
    data = text + [128]
    while len(data) % 64 != 56:
        data.append(0)
    for byte in range(8):
        data.append(((len(text) * 8) >> (8 * byte)) & 255)
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    for block in range(0, len(data), 64):
        words = [
            data[block + 4 * i]
            | (data[block + 4 * i + 1] << 8)
            | (data[block + 4 * i + 2] << 16)
            | (data[block + 4 * i + 3] << 24)
            for i in range(16)
        ]
        changed = _block(state, words)
        state = [(state[i] + changed[i]) & 0xFFFFFFFF for i in range(4)]
    return state


def _block(state: list[int], words: list[int]) -> list[int]:
    """The 64 steps over one block of 16 words; step i adds floor(2^32 |sin(i + 1)|)."""
    turns = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21]
    a, b, c, d = state[0], state[1], state[2], state[3]
    for step in range(64):
        part = step // 16
        if part == 0:
            mixed, word = (b & c) | ((b ^ 0xFFFFFFFF) & d), step
        elif part == 1:
            mixed, word = (d & b) | ((d ^ 0xFFFFFFFF) & c), (5 * step + 1) % 16
        elif part == 2:
            mixed, word = b ^ c ^ d, (3 * step + 5) % 16
        else:
            mixed, word = c ^ (b | (d ^ 0xFFFFFFFF)), (7 * step) % 16
        total = (a + mixed + int(abs(math.sin(step + 1.0)) * 4294967296.0) + words[word]) & 0xFFFFFFFF
        turn = turns[part * 4 + step % 4]
        turned = ((total << turn) | (total >> (32 - turn))) & 0xFFFFFFFF
        a, d, c, b = d, c, b, (b + turned) & 0xFFFFFFFF
    return [a, b, c, d]
