#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares model families with Transformers and llama.cpp: random configurations, not the one of each golden.

    python check_families.py build/release/bin/baton_answer_check [--only NAME] [--seeds 20]
                             [--gguf llama.cpp/convert_hf_to_gguf.py [--peer]] [--keep DIR]

Needs torch, transformers 5 and safetensors (as make_models.py, whose families it draws from, besides those of
random_families.py), and tokenizers. For each family and seed it draws widths, heads, layers, windows and a vocabulary,
fills a model with random weights, saves it as a Hugging Face folder, and asks the program for logits and 32 greedy
tokens after prompts of 1, 40 and 300 tokens, in f32. Folders of odd seeds of random_families.py have the form of the
published checkpoints, even ones that of Transformers 5.

--gguf makes a GGUF file of each folder, in f32, with llama.cpp's own converter (which needs sentencepiece), and asks
for that, too. --peer asks llama.cpp for the greedy tokens after the same prompts (package xllamacpp).

Right is: logits within 8 times the noise of rounding (|float32 - float64| of Transformers, or what moving every weight
within its rounding to f32 changes, whichever is larger), and the same tokens. At a near tie, if the two best logits are
closer than twice that tolerance, tokens may part; that is counted. A family that the program refuses by its name is
listed as one that it does not open. What a GGUF file of llama.cpp's converter does not say (windows of Mistral and
Qwen2, for one) is asked of folders alone. Where llama.cpp parts from Transformers, it is listed and no failure.
"""

import argparse
import copy
import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import torch
import transformers

import make_models
import random_families
from make_models import BASE, CONFIGS, MODELS, in_double

PROMPTS = (1, 40, 300)
TOKENS = 32
SPECIAL = ("<pad>", "<s>", "</s>")


def write_tokenizer(folder, vocabulary):
    """A tokenizer with a token for each byte, one merge, and fillers up to the vocabulary's size: all speak in ids."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        names.setdefault(byte, chr(256 + sum(one not in printable for one in range(byte))))
    tokens = {token: id for id, token in enumerate(SPECIAL)}
    tokens |= {names[byte]: len(SPECIAL) + byte for byte in range(256)}
    tokens["er"] = len(tokens)
    assert len(tokens) <= vocabulary - len(SPECIAL)
    # Some classes of Transformers add a token of their own, for which there must be an id. The converter cuts Gemma's
    # embeddings to the number of tokens, but counts the special ones twice.
    tokens |= {f"filler{id}": id for id in range(len(tokens), vocabulary - len(SPECIAL))}
    added = [dict(id=tokens[name], content=name, single_word=False, lstrip=False, rstrip=False, normalized=False,
                  special=True) for name in SPECIAL]
    pretokenizer = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    (folder / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", added_tokens=added, normalizer=None, post_processor=None, pre_tokenizer=pretokenizer,
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(type="BPE", vocab=tokens, merges=["e r"]))))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=False)))


def said_by_files(name, arguments):
    """Arguments in the place of some that a GGUF file cannot say."""
    if name == "mistral":
        return dict(sliding_window=None)
    if name == "gemma3":
        return dict(num_hidden_layers=7, sliding_window_pattern=6, query_pre_attn_scalar=arguments["head_dim"])
    if name == "smollm3":
        return dict(no_rope_layers=[int((i + 1) % 4 != 0) for i in range(arguments["num_hidden_layers"])])
    return {}


def unsaid_by_files(config):
    """True if llama.cpp's converter writes a file that does not say what config.json says."""
    kind, layers = config["model_type"], config.get("num_hidden_layers", 0)
    sliding = [one == random_families.SLIDING for one in config.get("layer_types") or []]
    if kind in ("qwen2", "mistral"):
        return any(sliding) or (kind == "mistral" and config["sliding_window"] is not None)
    if kind == "gemma3_text":  # each sixth layer attends to everything, and heads are as wide as scores take them
        return (sliding != [(i + 1) % 6 != 0 for i in range(layers)]
                or config["query_pre_attn_scalar"] != config["head_dim"])
    if kind == "smollm3":
        return config["no_rope_layers"] != [int((i + 1) % 4 != 0) for i in range(layers)]
    if kind == "gpt_oss":
        rope = config.get("rope_parameters") or config.get("rope_scaling")
        return config["swiglu_limit"] != 7.0 or rope["truncate"]
    return False


def drawn(name, seed):
    """(model class, configuration class, arguments): a family's configuration with other sizes."""
    draw = random.Random(f"{name} {seed}")
    if name in random_families.DRAWN:
        return random_families.DRAWN[name](draw)
    kind, arguments = MODELS[name][:2]
    heads = draw.choice([2, 4, 6])
    head_dim = draw.choice([16, 24, 32])
    wide = "head_dim" in arguments  # else the width is that of all heads together
    sizes = dict(hidden_size=draw.choice([48, 64, 96]) if wide else heads * head_dim, num_attention_heads=heads,
                 num_key_value_heads=draw.choice([n for n in (1, 2, 4, 6) if heads % n == 0]),
                 intermediate_size=draw.choice([72, 112, 160]), num_hidden_layers=draw.randint(2, 5),
                 vocab_size=draw.randint(264, 400))
    if wide:
        sizes["head_dim"] = head_dim
    arguments = BASE | copy.deepcopy(arguments) | sizes
    arguments.pop("layer_types", None)
    if isinstance(arguments.get("sliding_window"), int):
        arguments["sliding_window"] = draw.choice([7, 20, 64, 130])
    if "no_rope_layers" in arguments:
        arguments["no_rope_layers"] = [draw.randint(0, 1) for _ in range(sizes["num_hidden_layers"])]
    if "mlp_only_layers" in arguments:
        arguments["mlp_only_layers"] = [i for i in range(sizes["num_hidden_layers"]) if draw.random() < 0.3]
    for key in ("num_experts", "num_local_experts"):
        if key in arguments:
            arguments[key] = draw.choice([4, 6, 9])
    rope = arguments.get("rope_parameters") or {}
    if "short_factor" in rope:
        pairs = int(head_dim * rope["partial_rotary_factor"]) // 2
        rope["short_factor"] = [draw.uniform(1.0, 2.0) for _ in range(pairs)]
        rope["long_factor"] = [draw.uniform(1.0, 20.0) for _ in range(pairs)]
    if name == "exaone4_full":
        arguments["layer_types"] = ["full_attention"] * sizes["num_hidden_layers"]
    if isinstance(arguments["eos_token_id"], list):
        arguments["eos_token_id"] = [id for id in arguments["eos_token_id"] if id < sizes["vocab_size"]]
    if kind == "Gemma3":  # Transformers opens no other widths
        arguments["hidden_size"] = -(-sizes["hidden_size"] // heads) * heads
    if seed % 2:
        arguments |= said_by_files(name, arguments)
    return kind + "ForCausalLM", CONFIGS.get(kind, kind + "Config"), arguments


def make_folder(name, seed, folder):
    kind, config_kind, arguments = drawn(name, seed)
    config = getattr(transformers, config_kind)(**arguments)
    config._attn_implementation = "eager"
    model = getattr(transformers, kind)(config).float()
    if name in random_families.DRAWN:
        random_families.fill(model, seed)
    else:
        make_models.fill(model, torch.Generator().manual_seed(seed), kind.removesuffix("ForCausalLM"))
    model.save_pretrained(folder)
    # llama.cpp opens no Gemma 3n without the unused tensors of the published files.
    if name in random_families.DRAWN and (seed % 2 or name == "gemma3n_e2b"):
        random_families.spell_as_published(folder, config, seed)
    write_tokenizer(folder, config.vocab_size)
    return model.eval()


class Oracle:
    """What Transformers computes with a folder. `made`: the model that was saved in it."""

    def __init__(self, folder, made, seed):
        self.folder = folder
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
        double = copy.deepcopy(self.model).double()
        with in_double():
            for module in list(double.modules()):
                for key, child in list(module.named_children()):
                    if type(child).__name__.endswith("RotaryEmbedding") and "Vision" not in type(child).__name__:
                        setattr(module, key, type(child)(child.config))
        draw = torch.Generator().manual_seed(seed)
        vocabulary = self.model.config.get_text_config().vocab_size
        self.prompts = [torch.randint(3, vocabulary, (length,), generator=draw).tolist() for length in PROMPTS]
        self.logits = [self.run(self.model, ids)[-1] for ids in self.prompts]
        with in_double():
            exact = [self.run(double, ids)[-1] for ids in self.prompts]
        assert all(one.dtype == torch.float64 for one in exact)
        apart = (self.run(made, self.prompts[1])[-1] - self.logits[1]).abs().max()
        assert apart < 1e-4, f"the saved checkpoint computes something else than the model: {apart}"
        noise = [float((a.double() - b).abs().max()) for a, b in zip(self.logits, exact)]
        self.tolerance = 8 * max(*noise, self.moved(double, exact, draw))

    def moved(self, double, exact, draw):
        """How far the logits move if every weight is moved within its rounding to f32: the largest of four draws. A first
        token's recurrence is divided by its own size, which can be next to nothing; then one rounding shows."""
        largest = 0.0
        for _ in range(4):
            other = copy.deepcopy(double)
            with torch.no_grad(), in_double():
                for weight in other.parameters():
                    weight.mul_(1 + (2 * torch.rand(weight.shape, generator=draw) - 1) * 2**-24)
                largest = max(largest, *(float((self.run(other, ids)[-1] - logits).abs().max())
                                         for ids, logits in zip(self.prompts, exact)))
        return largest

    @staticmethod
    def run(model, ids):
        with torch.no_grad():
            return model(torch.tensor([ids]), use_cache=False).logits[0]

    def parts_at(self, ids, tokens):
        """(the first of `tokens` that is not the best one after the prompt and those before, or None; the gap there)"""
        logits = self.run(self.model, ids + tokens[:-1])[len(ids) - 1:]
        best = torch.topk(logits, 2)
        for at, token in enumerate(tokens):
            if token != int(best.indices[at, 0]):
                return at, float(best.values[at, 0] - best.values[at, 1])
        return None, 0.0


@dataclasses.dataclass
class Tally:
    """What the seeds of a family gave, of folders or of files."""
    asked: int = 0
    worst: float = 0.0
    ties: int = 0
    unopened: int = 0
    unsaid: int = 0  # of files: those that do not say all that the folder says
    problems: list = dataclasses.field(default_factory=list)

    def text(self):
        if not self.asked:
            return "what no file can say" if self.unsaid else "not asked"
        if self.unopened == self.asked:
            return "not opened"
        wrong = f", {len(self.problems)} WRONG" if self.problems else ""
        unopened = f", {self.unopened} not opened" if self.unopened else ""
        unsaid = f", {self.unsaid} that no file can say" if self.unsaid else ""
        return f"{self.worst:.2f}, {self.ties} ties{unsaid}{unopened}{wrong}"


def ask(program, path, oracle, tally, seed):
    """Asks the program for a folder or a file, and compares. Returns its tokens after each prompt."""
    tally.asked += 1
    asked = "".join(json.dumps(dict(ids=ids, tokens=TOKENS, ends=False, logits=True)) + "\n" for ids in oracle.prompts)
    done = subprocess.run([program, path, "f32"], input=asked, capture_output=True, text=True)
    if done.returncode != 0:
        refused = done.stderr.strip()
        if "supported are" in refused or "general.architecture" in refused:
            tally.unopened += 1
        else:
            tally.problems.append(f"seed {seed}: {refused}")
        return None
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for ids, logits, answer in zip(oracle.prompts, oracle.logits, answers):
        # Compared so that NaN counts as wrong; files of a padded vocabulary have more logits.
        error = float((torch.tensor(answer["logits"])[:len(logits)] - logits).abs().max()) / oracle.tolerance
        tally.worst = max(tally.worst, error)
        if not error <= 1.0:
            tally.problems.append(f"seed {seed}: prompt of {len(ids)}: logits differ by {error:.1f} of the tolerance")
        at, gap = oracle.parts_at(ids, answer["tokens"])
        if at is not None and gap < 2 * oracle.tolerance:
            tally.ties += 1
        elif at is not None:
            tally.problems.append(f"seed {seed}: prompt of {len(ids)}: token {at} differs at a gap of {gap:.1e}")
    return [answer["tokens"] for answer in answers]


# Runs the converter once for each line of arguments, and prints an error or "". The tokenizer is byte-level and of no
# published checkpoint: Gemma's and Phi's classes expect SentencePiece's, and a hash names the way to split texts.
CONVERT = """
import contextlib, json, pathlib, runpy, sys
program = sys.argv[1]
sys.path.insert(0, str(pathlib.Path(program).parent))
import conversion.base, conversion.gemma, conversion.phi
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
for kind in (conversion.gemma.Gemma3Model, conversion.gemma.Gemma3NModel, conversion.gemma.Gemma4Model,
             conversion.phi.Phi3MiniModel):
    kind.set_vocab = lambda self: self._set_vocab_gpt2()


def plain(folder, *more, **named):
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return config if config["model_type"] == "nemotron_h" else load_hparams(folder, *more, **named)


# Transformers adds num_experts_per_tok to Nemotron-H, by which the converter takes a dense model for a mixture.
load_hparams = conversion.base.ModelBase.load_hparams
conversion.base.ModelBase.load_hparams = staticmethod(plain)
for line in sys.stdin:
    sys.argv = [program] + json.loads(line)
    said = ""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        said = f"it exits with {error.code}" if error.code else ""
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
"""


def convert(converter, folders):
    """For each folder why there is no model-f32.gguf in it now, or nothing."""
    commands = []
    for folder in folders:
        config = json.loads((folder / "config.json").read_text())
        source = folder
        if config["model_type"] in ("granitemoehybrid", "nemotron_h") and "torch_dtype" not in config:
            # The converter knows the layer types of these in the published spelling alone.
            source = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
            for file in folder.iterdir():
                (source / file.name).symlink_to(file)
            (source / "config.json").unlink()
            (source / "config.json").write_text(json.dumps(random_families.published(config)))
        command = [str(source), "--outtype", "f32", "--outfile", str(folder / "model-f32.gguf")]
        if config["model_type"].startswith("qwen3_"):
            command.append("--no-mtp")  # no layers that predict further tokens
        commands.append(json.dumps(command) + "\n")
    done = subprocess.run([sys.executable, "-c", CONVERT, converter], input="".join(commands), capture_output=True,
                          text=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    ended = " ".join(done.stderr.split())[-300:]
    return said + [f"it ended: {ended}"] * (len(folders) - len(said))


# Serves a file on a free port, and says where. KV in f32, all on one thread.
SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel, params.n_gpu_layers = 1024, 512, 512, 1, 0
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = params.fit_params = params.cache_prompt = False
params.verbosity = 1
server = xllamacpp.Server(params)
print("serving", server.listening_address, flush=True)
sys.stdin.read()
"""


def peer_tokens(file, prompts):
    """llama.cpp's greedy tokens after each prompt, or why there are none."""
    server = subprocess.Popen([sys.executable, "-c", SERVE, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        address = next((line.split()[1] for line in server.stdout if line.startswith("serving ")), None)
        if address is None:
            said = [line for line in server.stderr if "rror" in line or "ASSERT" in line]
            return None, "llama.cpp: " + (said or ["it ended without a word"])[0].strip()

        def complete(ids, count):
            body = dict(prompt=ids, n_predict=count, temperature=0.0, top_k=1, return_tokens=True, cache_prompt=False)
            request = urllib.request.Request(address + "/completion", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            return json.loads(urllib.request.urlopen(request, timeout=120).read())["tokens"]

        answers = []
        for ids in prompts:
            tokens = []
            while len(tokens) < TOKENS:  # the server stops behind a token that ends an answer
                more = complete(ids + tokens, TOKENS - len(tokens))
                if not more:
                    return None, f"llama.cpp: no token after {len(ids)} + {len(tokens)}"
                tokens += more
            answers.append(tokens)
        return answers, ""
    except OSError as error:
        return None, f"llama.cpp: {error}"
    finally:
        server.kill()
        server.communicate()


@dataclasses.dataclass
class Family:
    name: str
    folder: Tally = dataclasses.field(default_factory=Tally)
    file: Tally = dataclasses.field(default_factory=Tally)
    peer_runs: int = 0
    peer_equal: int = 0
    peer_refusals: list = dataclasses.field(default_factory=list)
    peer_apart: list = dataclasses.field(default_factory=list)

    def check(self, given, scratch):
        """All seeds: folders, then all files, which one run of the converter makes."""
        oracles = {}
        for seed in range(given.first, given.first + given.seeds):
            path = scratch / f"{self.name}-{seed}"
            path.mkdir(parents=True, exist_ok=True)
            try:
                oracles[seed] = Oracle(path, make_folder(self.name, seed, path), seed)
            except Exception as error:  # of Transformers or of this program: reported, and the others go on
                self.folder.problems.append(f"seed {seed}: not checked: {type(error).__name__}: {error}")
            else:
                ask(given.program, path, oracles[seed], self.folder, seed)
        if not given.gguf or self.name in random_families.FOLDERS_ONLY:
            return
        refusals = convert(given.gguf, [oracle.folder for oracle in oracles.values()])
        for (seed, oracle), refused in zip(oracles.items(), refusals):
            if refused:
                self.peer_refusals.append(f"seed {seed}: the converter: {refused}")
                continue
            file = oracle.folder / "model-f32.gguf"
            if unsaid_by_files(json.loads((oracle.folder / "config.json").read_text())):
                self.file.unsaid += 1
            else:
                ask(given.program, file, oracle, self.file, seed)
            if given.peer:
                self.compare_peer(seed, oracle, file)

    def compare_peer(self, seed, oracle, file):
        answers, refused = peer_tokens(file, oracle.prompts)
        if answers is None:
            self.peer_refusals.append(f"seed {seed}: {refused}")
            return
        for ids, tokens in zip(oracle.prompts, answers):
            self.peer_runs += 1
            at, gap = oracle.parts_at(ids, tokens)
            if at is None:
                self.peer_equal += 1
            else:
                self.peer_apart.append(f"seed {seed}: prompt of {len(ids)}: llama.cpp parts from Transformers at token "
                                       f"{at}, at a gap of {gap:.1e}")

    def peer_text(self):
        refused = f"{len(self.peer_refusals)} refused" if self.peer_refusals else ""
        equal = f"{self.peer_equal} of {self.peer_runs} equal" if self.peer_runs else ""
        return ", ".join(part for part in (equal, refused) if part) or "not asked"

    def failed(self):
        ties = self.folder.ties + self.file.ties
        runs = (self.folder.asked + self.file.asked) * len(PROMPTS)
        if ties > 0.05 * runs:
            self.folder.problems.append("more than 5 % of the runs part at near ties")
        return bool(self.folder.problems or self.file.problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*MODELS, *(name for name in random_families.DRAWN if name not in MODELS)]
    parser.add_argument("program", help="baton_answer_check")
    parser.add_argument("--only", action="append", choices=names, help="these families alone")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--gguf", metavar="CONVERTER", help="llama.cpp's convert_hf_to_gguf.py: GGUF files, too")
    parser.add_argument("--peer", action="store_true", help="llama.cpp's tokens, too; needs package xllamacpp")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the folders and files here")
    given = parser.parse_args()
    if given.peer and not given.gguf:
        parser.error("--peer needs --gguf")
    # The stand-ins for CUDA's libraries of a machine without a GPU know no streams.
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows, failed = [], 0
    for name in given.only or names:
        family = Family(name)
        with tempfile.TemporaryDirectory() as scratch:
            family.check(given, pathlib.Path(given.keep or scratch).absolute())
        failed += family.failed()
        rows.append((name, family.folder.text(), family.file.text(), family.peer_text()))
        print(f"{name:20} folders: {rows[-1][1]}; files: {rows[-1][2]}; llama.cpp: {rows[-1][3]}"
              + "".join(f"\n    folder, {problem}" for problem in family.folder.problems)
              + "".join(f"\n    file, {problem}" for problem in family.file.problems)
              + "".join(f"\n    {note}" for note in (*family.peer_refusals, *family.peer_apart)), flush=True)
    heads = ("family", "folders: largest error / tolerance", "GGUF files", "tokens of llama.cpp as of Transformers")
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    print(f"\n{given.seeds} seeds of each family, prompts of {', '.join(map(str, PROMPTS))} tokens\n")
    for row in (heads, tuple("-" * width for width in widths), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
