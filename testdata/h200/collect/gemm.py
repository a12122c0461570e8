"""wattmark.measure around a loop of matrix products in PyTorch."""
import json

import torch
import wattmark

a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
stream = torch.cuda.Stream()
for where in ("current stream", "another stream"):
    with torch.cuda.stream(stream if where == "another stream" else torch.cuda.current_stream()):
        b = a @ a
        with wattmark.measure("gemm, " + where, user="lab") as m:
            for _ in range(2000):
                b = a @ a
    n = 2000 * 2 * 8192**3
    print(json.dumps({"where": where, "task": m.task, "energy_j": m.energy, "u_j": m.uncertainty, "pj_per_flop": 1e12 * m.energy / n}))
