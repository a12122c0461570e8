"""A server of a language model with continuous batches, and clients that load it: joules by stage, request and token.

    wattmark run --name serve -- python3 serve.py --rate 4 --seconds 60
    wattmark show latest --windows

Needs PyTorch, transformers 5 and an NVIDIA GPU. Without --model the weights are random: the joules are those of
the arithmetic all the same. Prefill is from a request's arrival to its first token, waiting included; decode from there
to its last.
"""
import argparse
import random
import threading
import time

import torch
import wattmark
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, LlamaForCausalLM

# Of each class: tokens of the prompt and of the answer, from and to.
CLASSES = {"chat": ((32, 128), (64, 256)), "summary": ((512, 1024), (16, 64))}


def load(name):
    if name:
        return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16).cuda().eval()
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=16,
                                             num_key_value_heads=16, vocab_size=32000, max_position_embeddings=4096))
    return model.bfloat16().eval()


class Server:
    """Takes requests, and follows each through prefill and decode."""

    def __init__(self, model, most):
        config = GenerationConfig(max_new_tokens=most, do_sample=False, eos_token_id=-1, pad_token_id=0)
        self.manager = model.init_continuous_batching(generation_config=config)
        self.manager.start()
        self.lock = threading.Lock()
        self.open = {}  # by request: class, window and tokens of the prompt
        self.tokens = 0
        self.error = None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def ask(self, rid, cls, prompt, answer):
        with self.lock:
            self.open[rid] = (cls, wattmark.window(rid, "prefill", cls), len(prompt))
        self.manager.add_request(prompt, request_id=rid, max_new_tokens=answer, streaming=True)

    def read(self):
        while True:
            out = self.manager.get_result(timeout=0.1)
            if out is None:
                continue
            with self.lock:
                if out.request_id not in self.open:
                    continue
                cls, window, prompt = self.open[out.request_id]
                if prompt and out.generated_tokens:  # its first token
                    window.end(prompt_tokens=prompt)
                    window = wattmark.window(out.request_id, "decode", cls)
                    self.open[out.request_id] = (cls, window, 0)
                if out.is_finished():
                    self.error = self.error or out.error
                    window.end(tokens=len(out.generated_tokens))
                    self.tokens += len(out.generated_tokens)
                    del self.open[out.request_id]

    def drain(self):
        while self.open and not self.error:
            time.sleep(0.01)
        if self.error:
            raise SystemExit("a request failed: %s" % self.error)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="", help="a model of the Hugging Face hub, or a folder")
    p.add_argument("--rate", type=float, default=4, help="requests a second, on the mean")
    p.add_argument("--seconds", type=float, default=60, help="how long requests arrive")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    server = Server(load(a.model), max(answer[1] for _, answer in CLASSES.values()))
    server.ask("warm-up", "warm-up", [1] * 64, 16)
    server.drain()
    begin, n, server.tokens = time.monotonic(), 0, 0
    due = rng.expovariate(a.rate)
    while due < a.seconds:
        time.sleep(max(0, begin + due - time.monotonic()))
        cls = rng.choice(sorted(CLASSES))
        prompt, answer = (rng.randint(*span) for span in CLASSES[cls])
        server.ask("r%d" % n, cls, [rng.randrange(32000) for _ in range(prompt)], answer)
        n += 1
        due += rng.expovariate(a.rate)
    server.drain()
    took = time.monotonic() - begin
    print("%d requests in %.1f s, %.1f tokens a second" % (n, took, server.tokens / took), flush=True)
    server.manager.stop(block=True, timeout=10)


main()
