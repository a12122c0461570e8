# Windows of two streams on a GPU for argv[1] seconds: wattmark run --keep 1m --mark-every 35s --mark-busy -- python3 keep.py 430
import json, os, random, sys, threading, time, torch
f = open(os.path.join(os.environ["WATTMARK_WINDOWS"], "a.jsonl"), "a")
lock = threading.Lock(); end = time.time() + float(sys.argv[1])
x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
def worker(n):
    k, s = 0, torch.cuda.Stream()
    while time.time() < end:
        b = time.time_ns(); stop = time.time() + random.uniform(1, 4)
        with torch.cuda.stream(s):
            while time.time() < stop:
                for _ in range(4): y = x @ x
                s.synchronize()
        e = time.time_ns(); k += 1
        with lock:
            f.write(json.dumps({"id": f"r{n}-{k}", "stage": "decode", "class": "chat", "begin_ns": b, "end_ns": e, "counts": {"tokens": 10}}) + "\n"); f.flush()
        time.sleep(random.uniform(0, 6))
ts = [threading.Thread(target=worker, args=(n,)) for n in range(2)]
[t.start() for t in ts]; [t.join() for t in ts]
