"""A PyTorch program that profiles itself: MODE is never, once, twice or early (the profiler begins before CUDA is
initialised). It prints how many kernels its own profiler got, and writes its first trace to the second argument."""
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

mode, trace = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def setup():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(2048, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 2048)).cuda()
    return net, torch.optim.SGD(net.parameters(), lr=0.01), torch.randn(4096, 2048, device="cuda")


def step(net, optimiser, x):
    with record_function("train_step"):
        with record_function("forward"), torch.cuda.nvtx.range("forward"):
            loss = (net(x) - x).square().mean()
        with record_function("backward"), torch.cuda.nvtx.range("backward"):
            loss.backward()
        with record_function("optimizer"), torch.cuda.nvtx.range("optimizer"):
            optimiser.step()
            optimiser.zero_grad()


def count(prof):
    return sum(e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation and "Memset" not in e.name
               and "Memcpy" not in e.name for e in prof.events())


def session(state, n):
    with profile(activities=BOTH) as prof:
        for _ in range(n):
            step(*state)
            prof.step()
        torch.cuda.synchronize()
    return prof


counts = []
if mode == "early":
    with profile(activities=BOTH) as prof:
        state = setup()
        step(*state)
        torch.cuda.synchronize()
    counts.append(count(prof))
else:
    state = setup()
for _ in range(20):
    step(*state)
torch.cuda.synchronize()
for i in range({"never": 0, "twice": 2}.get(mode, 1)):
    prof = session(state, 30)
    counts.append(count(prof))
    if trace and i == 0:
        prof.export_chrome_trace(trace)
    for _ in range(10):
        step(*state)
    torch.cuda.synchronize()
print({"mode": mode, "its own profiler's kernels": counts})
