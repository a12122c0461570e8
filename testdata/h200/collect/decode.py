"""Tokens of a language model one after the other, bound by the processor: what recording each launch costs shows most here."""
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
torch.set_default_device("cuda")
model = LlamaForCausalLM(LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=24, num_attention_heads=16,
                                     num_key_value_heads=16, vocab_size=32000)).bfloat16().eval()
prompt = torch.randint(0, 32000, (1, 16))
seconds = []
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 8):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=60, min_new_tokens=60, do_sample=False)
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - begin)
seconds = sorted(seconds[1:])  # the first has its kernels loaded
print("DECODE", round(seconds[0], 4), round(seconds[len(seconds) // 2], 4), flush=True)
