"""Read a sensor certificate, and verify it without wattmark.

    python -m wattmark.certificate FILE --key LAB.pub --recordings FOLDER

checks the signature (Ed25519, RFC 8032), the dates and the files' hashes, then finds the
sensor's figures from the recordings by a fit of its own (_recompute.py), without NumPy.

    c = wattmark.certificate.load("h200.certificate.json", key="lab.pub", driver="580.159.04")
    watts = c.power(reading)
"""

import base64
import datetime
import hashlib
import json
import os
import sys
from typing import Any, Dict, List, Optional

from ._ed25519 import signed_by

TYPE = "application/vnd.in-toto+json"
PREDICATE = "https://github.com/wattmark/wattmark/sensor-certificate/v1"


class Refused(Exception):
    """Why a certificate is not believed."""


def _when(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


class Certificate:
    """What was certified: sensor, conditions, errors, as in the file."""

    sensor: Dict[str, Any]
    source: Dict[str, Any]

    def __init__(self, predicate: Dict[str, Any], files: List[Dict[str, Any]]):
        self.__dict__.update(predicate)
        self.files = files

    def power(self, reading: float) -> float:
        """The power in watts that a settled reading stands for."""
        return float((reading - self.sensor["offset_w"]) / self.sensor["gain"])


def load(path: str, key: Optional[str] = None, driver: str = "", gpu: str = "") -> Certificate:
    """Read a certificate; raise Refused where it does not hold, or is of another sensor."""
    with open(path, "rb") as f:
        e = json.load(f)
    try:
        body = base64.b64decode(e["payload"])
        s = json.loads(body)
        c = s["predicate"]
        public, end = c["issuer"]["public_key"], c["issuer"]["key_expires"]
    except (ValueError, KeyError) as x:
        raise Refused("its payload is damaged: %s" % x)
    if e["payloadType"] != TYPE or s["predicateType"] != PREDICATE or c["certificate_version"] != 1:
        raise Refused("another form or version")
    if key:
        word = open(key).read().split(None, 3)
        if word[1] != public:
            raise Refused("it was signed by another key than %s's" % word[3].strip())
        end = word[2]
    text = b"DSSEv1 %d %s %d %s" % (len(TYPE), TYPE.encode(), len(body), body)
    now = datetime.datetime.now(datetime.timezone.utc)
    if not signed_by(base64.b64decode(public), base64.b64decode(e["signatures"][0]["sig"]), text):
        raise Refused("the signature does not fit the content: it was changed after it was signed")
    if max(now, _when(c["made"])) >= _when(end):
        raise Refused("the key expired on " + end[:10])
    if now >= _when(c["expires"]):
        raise Refused("it expired on " + c["expires"][:10])
    own = c["sensor"]
    if driver and driver.split()[0] != own["driver"].split()[0] or not own["gpu_uuid"].startswith(gpu):
        raise Refused("it is of GPU %s, driver %s" % (own["gpu_uuid"], own["driver"]))
    return Certificate(c, s["subject"])


def main() -> int:
    import argparse
    import math
    from ._recompute import recompute
    a = argparse.ArgumentParser(description="Verify a sensor certificate without wattmark.")
    a.add_argument("file")
    for n in ("--key", "--recordings", "--driver", "--gpu"):
        a.add_argument(n, default="")
    o = a.parse_args()
    try:
        c = load(o.file, o.key, o.driver, o.gpu)
        for f in c.files if o.recordings else []:
            if hashlib.sha256(open(os.path.join(o.recordings, f["name"]), "rb").read()).hexdigest() != f["digest"]["sha256"]:
                raise Refused("%s is not the file that was certified" % f["name"])
        figures, likelier = recompute(c, o.recordings) if o.recordings and c.source["kind"] != "pmd" else ([], 0)
        for n, x, u, v, w in figures:
            print("%-9s found %.6g +- %.2g, certified %.6g +- %.2g" % (n, v, w, x, u))
        bad = [n for n, x, u, v, w in figures if not abs(v - x) <= math.hypot(u, w)]
        if bad and likelier > 6:  # else the recordings do not tell the two apart
            raise Refused("by the recordings these differ by more than both U: " + ", ".join(bad))
    except Refused as e:
        print("refused:", e, file=sys.stderr)
        return 1
    print("%s holds" % o.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
