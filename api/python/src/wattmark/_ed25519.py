"""Signatures by Ed25519 (RFC 8032), checked in plain Python: a few milliseconds each."""

import hashlib
from typing import Tuple

Point = Tuple[int, int, int, int]

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P


def _add(a: Point, b: Point) -> Point:
    """Add two points of edwards25519 in extended coordinates."""
    A, B = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    C, E = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    return (B - A) * (E - C) % P, (E + C) * (B + A) % P, (E - C) * (E + C) % P, (B - A) * (B + A) % P


def _times(n: int, a: Point) -> Point:
    r: Point = (0, 1, 1, 0)
    while n:
        if n & 1:
            r = _add(r, a)
        a, n = _add(a, a), n >> 1
    return r


def _point(b: bytes) -> Point:
    y = int.from_bytes(b, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - xx) % P or y >= P:
        raise ValueError("no point of the curve")
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


BASE = _point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def signed_by(key: bytes, sig: bytes, text: bytes) -> bool:
    """Whether sig is key's Ed25519 signature of text."""
    s = int.from_bytes(sig[32:], "little")
    if len(sig) != 64 or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + text).digest(), "little") % L
    a, b = _times(s, BASE), _add(_point(sig[:32]), _times(h, _point(key)))
    return bool((a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0)
