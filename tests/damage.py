"""Ways in which a file comes to be damaged on a disk or on its way there."""

import random

KINDS = ("bit", "zero", "cut", "swap", "duplicate", "append")


def damage(data: bytes, kind: str, chance: random.Random) -> bytes:
    """Return other bytes, unless the file is empty and nothing can happen to it."""
    for _ in range(100):
        found = _damage(data, kind, chance)
        if found != data:
            return found
    return data + b"\0"


def _damage(data: bytes, kind: str, chance: random.Random) -> bytes:
    if not data:
        return data
    place, length = chance.randrange(len(data)), chance.choice((1, 8, 64, 512, 4096))
    block = data[place : place + length]
    match kind:
        case "bit":
            flipped = data[place] ^ (1 << chance.randrange(8))
            return data[:place] + bytes([flipped]) + data[place + 1 :]
        case "zero":
            return data[:place] + bytes(len(block)) + data[place + len(block) :]
        case "cut":
            return data[:place]
        case "duplicate":
            return data[:place] + block + data[place:]
        case "append":
            return data + chance.randbytes(length)
    other = chance.randrange(len(data))  # swap
    first, second = sorted((place, other))
    length = min(length, second - first, len(data) - second)
    between = data[first + length : second]
    moved = data[second : second + length] + between + data[first : first + length]
    return data[:first] + moved + data[second + length :]
