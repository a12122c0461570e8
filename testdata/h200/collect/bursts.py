"""Matrix products in bursts: some seconds of work, then some of rest, for as long as asked."""
import sys
import time

import torch

seconds, busy, rest = (float(v) for v in sys.argv[1:4])
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end, bursts = time.monotonic() + seconds, 0
while time.monotonic() < end:
    stop = min(end, time.monotonic() + busy)
    while time.monotonic() < stop:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
    bursts += 1
    time.sleep(rest)
print({"bursts": bursts})
