#!/usr/bin/env python3
"""oracle.py SHOAL: the program against the numpy reference, on checkpoints made here and now.

Sizes, odd dimensions, seeds and tiny norms that no committed fixture has. For each: logits of three
prompts and their greedy continuations within the tolerance of the fixtures, top-1 equal at every
position whose margin exceeds what float32 can tell, greedy ids equal by `run --ids`."""
import json, os, subprocess, sys, tempfile
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "ref"))
import k3_numpy, make_tiny_k3

CASES = [("a", 1, 1.0), ("c", 2, 1.0), ("odd", 3, 1.0), ("odd", 4, 1e-3), ("min", 5, 1.0),
         ("min", 6, 3e-3), ("wide", 7, 1.0), ("a", 8, 1e-3), ("c", 9, 2e-4)]
MAX_ABS, RMS_REL, MARGIN = 2e-3, 5e-5, 1e-4


def make(out, size, seed, small):
    argv = sys.argv
    sys.argv = ["make", out, "--size", size, "--seed", str(seed), "--small", str(small)]
    make_tiny_k3.main()
    sys.argv = argv


def case(shoal, root, size, seed, small):
    d = os.path.join(root, f"{size}{seed}")
    make(d, size, seed, small)
    m = k3_numpy.K3(d)
    bad = 0
    for prompt in k3_numpy.prompts(m.cfg["vocab_size"], seed):
        want, greedy = k3_numpy.run(m, prompt)
        ids = ",".join(map(str, prompt + greedy))
        f = os.path.join(root, "logits.f32")
        subprocess.run([shoal, "logits", "--model", d, "--ids", ids, "--out", f], check=True,
                       stdout=subprocess.DEVNULL)
        got = np.fromfile(f, "<f4").reshape(want.shape).astype(np.float64)
        err = np.abs(got - want).max()
        rel = np.sqrt(((got - want) ** 2).mean() / (want ** 2).mean())
        top = np.sort(want, -1)
        sure = top[:, -1] - top[:, -2] > MARGIN
        top1 = (got.argmax(-1) == want.argmax(-1))[sure].all()
        r = subprocess.run([shoal, "run", "--model", d, "--ids", ",".join(map(str, prompt)),
                            "--max-new", str(len(greedy)), "--ignore-eos", "--json"], check=True,
                           capture_output=True, text=True)
        same = json.loads(r.stdout)["ids"] == greedy or not sure[len(prompt) - 1:].all()
        ok = err <= MAX_ABS and rel <= RMS_REL and top1 and same
        print(f"{'ok  ' if ok else 'FAIL'} size {size} seed {seed} small {small:g} prompt {len(prompt)}: "
              f"max abs {err:.2e} rms rel {rel:.2e} top-1 {bool(top1)} greedy {same} "
              f"router margin {m.min_margin:.1e}", flush=True)
        bad += not ok
    return bad


def main():
    with tempfile.TemporaryDirectory() as root:
        bad = sum(case(sys.argv[1], root, *c) for c in CASES)
    sys.exit(1 if bad else 0)


main()
