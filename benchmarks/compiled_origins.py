"""Of the GPU kernels of compiled models, how many lead to an op, to nodes with a Python line, and to nothing.

    python benchmarks/compiled_origins.py [MODEL...]        gpt2 gpt2-graphs vit llama
    python benchmarks/compiled_origins.py --fusion MODEL    and what fusing saved, against an eager run

Each model runs in a process of its own under `tracer record`; needs a GPU, and transformers or timm. Weights
are random: nothing is downloaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

GPT2 = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = GPT2LMHeadModel(GPT2Config(use_cache=False)).cuda().train()
step = torch.compile(model, mode={mode!r})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 50257, (4, 512), device="cuda")
for _ in range(8):
    with torch.autocast("cuda", torch.bfloat16):
        loss = step(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
"""
VIT = """
import timm, torch
torch.manual_seed(0)
model = timm.create_model("vit_base_patch16_224", num_classes=10).cuda().train()
step = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
images, labels = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
for _ in range(8):
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(step(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item())
"""
LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                     num_key_value_heads=8, vocab_size=32000, max_position_embeddings=1024)
model = LlamaForCausalLM(config).cuda().to(torch.bfloat16).eval()
tokens = torch.randint(0, 32000, (1, 64), device="cuda")
with torch.no_grad():
    for _ in range(2):  # with a static cache, generate compiles the model itself
        out = model.generate(tokens, max_new_tokens=32, do_sample=False, cache_implementation="static")
print("tokens", out.shape[1])
"""
MODELS = {
    "gpt2": GPT2.format(mode="default"),
    "gpt2-graphs": GPT2.format(mode="reduce-overhead"),
    "vit": VIT,
    "llama": LLAMA,
}


def main(arguments: list[str]) -> int:
    fusion = "--fusion" in arguments
    names = [name for name in arguments if name != "--fusion"]
    failed = 0
    for name in names or list(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            script, trace = Path(folder) / "model.py", Path(folder) / "compiled.trace"
            if not _recorded(name, MODELS[name], script, trace):
                failed += 1
                continue
            _show(trace)
            eager = Path(folder) / "eager.trace"
            without = re.sub(r"torch\.compile\((\w+)[^)]*\)", r"\1", MODELS[name])
            if fusion and _recorded(f"{name}, eager", without, script, eager):
                _show_fusion(eager, trace)
    return min(failed, 1)


def _recorded(name: str, text: str, script: Path, trace: Path) -> bool:
    script.write_text(text)
    command = [sys.executable, "-m", "tracer", "record", "-o", str(trace), str(script)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        print(f"{name}: does not run here: {run.stderr.strip().splitlines()[-1]}")
        return False
    print(f"{name}: {run.stdout.strip()}", flush=True)
    return True


def _show_fusion(eager: Path, compiled: Path) -> None:
    command = [sys.executable, "-m", "tracer", "diff", str(eager), str(compiled), "--limit", "8"]
    run = subprocess.run(command, capture_output=True, text=True)
    print(run.stdout.partition("\nmodel.py")[0] or run.stderr, flush=True)


def _show(path: Path) -> None:
    import polars as pl

    import tracer

    trace = tracer.load(path)
    code = trace.certificate["compiled"]
    total, neither = code["kernels"], code["kernels_of_neither"]
    print(
        f"  {total:,} kernels: {code['kernels_of_ops']:,} of ops, {code['kernels_of_nodes']:,} of nodes "
        f"with a line, {neither:,} of neither ({100 * (1 - neither / max(total, 1)):.2f} % lead back)"
    )
    print(
        f"  {code['calls']:,} calls of {code['regions']:,} regions, {code['kernel_runs']:,} runs of kernels"
    )
    print(f"  missing {code['missing']}, errors {code['errors'][:3]}, {len(code['breaks'])} kinds of breaks")
    kernels = trace.gpu_activities.filter(pl.col("kind").cast(pl.String) == "kernel")
    lost = kernels.filter(pl.col("hop").is_null() & pl.col("compiled_kernel").is_null())
    for name, count in lost.group_by("name").agg(pl.len()).sort("len", descending=True).head(8).iter_rows():
        print(f"    {count:,} x {str(name)[:100]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
