"""An ordinary PyTorch program that knows nothing of wattmark: a small network trained for some seconds."""
import sys
import time

import torch

torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(4096, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 4096)).cuda().bfloat16()
optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4)
x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
end, steps = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else 3), 0
while time.monotonic() < end:
    loss = torch.nn.functional.mse_loss(net(x), x)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    optimiser.step()
    steps += 1
    if steps % 20 == 0:
        torch.cuda.synchronize()
torch.cuda.synchronize()
print({"steps": steps, "loss": float(loss)})
