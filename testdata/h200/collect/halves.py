"""Work on every GPU at once, more on the first: products of matrices for three seconds."""
import threading
import time

import torch


def work(i, size):
    torch.cuda.set_device(i)
    a = torch.randn(size, size, device=f"cuda:{i}", dtype=torch.bfloat16)
    end, n = time.monotonic() + 3, 0
    while time.monotonic() < end:
        for _ in range(20):
            a @ a
        torch.cuda.synchronize(i)
        n += 20
    print({"gpu": i, "size": size, "products": n})


threads = [threading.Thread(target=work, args=(i, 8192 if i == 0 else 2048)) for i in range(torch.cuda.device_count())]
for t in threads:
    t.start()
for t in threads:
    t.join()
