"""Language models by folder, by GGUF file, untrained, and counted without weights: no network, and no real weights.

A GGUF file with trained weights takes half a minute to read, which a test does not have; a file of a tiny model,
written here, has the same layout. The reading of a real one was checked once by hand: SmolLM2-135M-Instruct, quantised
to four bits, has 134,515,008 parameters, and goes on from "The capital of Italy is" with " Rome."
"""

import ast
import inspect
import re
import sys

import chance
import numpy as np
import pytest
import torch
from scipy import stats
from shared import close

from icl import models
from icl.models import loading
from icl.profile import make_generator

transformers = pytest.importorskip("transformers", reason="pip install 'icl-book[language]'")

TEXT = "ab ba a b"
WORDS = ["<unk>", "a", "b", "ab", "ba"]


def tokenizer():
    """Words between spaces."""
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")


def small(kind="llama", **sizes):
    """An untrained model whose weights matter to its logits."""
    sizes = {"width": 32, "heads": 4, "words": len(WORDS), "places": 16, "spread": 0.5} | sizes
    return models.untrained(kind, generator=make_generator("loading"), **sizes)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_folder_gives_the_model_back(tmp_path, kind):
    """Weights to the bit, the tokenizer, the mode, and the dtype that was asked for."""
    model = small(kind)
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    for source, dtype in ((tmp_path, None), (str(tmp_path), torch.bfloat16)):
        read, words = models.loading.pretrained(source, dtype=dtype) if dtype else models.loading.pretrained(source)
        assert not read.training
        assert read.dtype == (dtype or torch.float32)
        for name, weight in model.state_dict().items():
            assert torch.equal(read.state_dict()[name], weight.to(read.dtype)), name
        assert words(TEXT).input_ids == [3, 4, 1, 2]


def write_gguf(file, model):
    """A Llama model in GGUF: its names, its pairs of rotary coordinates beside each other, and a word list."""
    gguf = pytest.importorskip("gguf", reason="pip install 'icl-book[language]'")
    config = model.config
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["a b", "b a"])
    for name in ("bos", "eos", "unk"):
        getattr(writer, f"add_{name}_token_id")(0)
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    parts = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    parts |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    parts |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for name, weight in model.state_dict().items():
        array = weight.numpy()
        if name in ends:
            writer.add_tensor(ends[name], array)
        elif name.startswith("model.layers."):
            layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            if parts[part] in ("attn_q", "attn_k"):
                # Row i of a head's first half stands before row i of its second half.
                rows = array.reshape(heads[parts[part][-1]], 2, -1, array.shape[1])
                array = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(array.shape)
            writer.add_tensor(f"blk.{layer}.{parts[part]}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_gives_the_model_back(tmp_path):
    """Written here by GGUF's own names and order of rotary rows; grouped heads too. Logits in float32."""
    model = small(key_heads=2)
    write_gguf(tmp_path / "tiny.gguf", model)
    read, words = models.loading.pretrained(tmp_path / "tiny.gguf")
    assert not read.training
    tokens = torch.randint(len(WORDS), (2, 12), generator=make_generator("texts"))
    with torch.no_grad():
        assert close(read(tokens).logits, model(tokens).logits, 1e-5)
    assert sum(p.numel() for p in read.parameters()) == sum(p.numel() for p in model.parameters())
    assert words.decode(words("abab").input_ids) == "abab"


@pytest.mark.statistical
def test_untrained_models_come_from_their_generator_alone():
    """Twice the same, another seed another model; the global generator is where it was."""
    torch_state = torch.get_rng_state()
    first, second = small(), small()
    assert torch.equal(torch.get_rng_state(), torch_state)
    other = models.untrained(
        "llama", generator=make_generator("loading", seed=1), words=len(WORDS), places=16, spread=0.5
    )
    squares = []
    for (name, one), two, three in zip(first.named_parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
        if one.dim() > 1:
            assert not torch.equal(one, three), name
            squares.append(stats.chi2(one.numel()).sf((one.detach().double() / 0.5).square().sum().item()))
    # Too small a sum of squares is as unlikely as too large a one.
    chance.assert_p([2 * min(p, 1 - p) for p in squares])


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_untrained_models_have_the_sizes_that_were_asked_for(kind):
    """And `sizes` counts them, without weights, as they are."""
    model = small(kind, layers=3)
    counted = models.loading.sizes(model.config)
    assert (counted.layers, counted.width, counted.heads) == (3, 32, 4)
    assert counted.parameters == sum(p.numel() for p in model.parameters())
    assert counted.untied == counted.parameters + 32 * len(WORDS)
    assert model(torch.zeros(1, 16, dtype=torch.int64)).logits.shape == (1, 16, len(WORDS))


def test_the_smallest_gpt2_is_counted():
    """By hand: words, places, and twelve blocks of two norms, four matrices and their offsets; then one norm."""
    words, places, width, layers = 50_257, 1024, 768, 12
    block = 2 * 2 * width + (width * 3 * width + 3 * width) + (width * width + width)
    block += (width * 4 * width + 4 * width) + (4 * width * width + width)
    by_hand = (words + places) * width + layers * block + 2 * width
    assert models.loading.sizes() == models.loading.Sizes(12, 768, 12, by_hand, by_hand + words * width)
    assert by_hand == 124_439_808


def test_without_the_packages_it_says_what_to_install(tmp_path, monkeypatch):
    """For a model, for a configuration, for an untrained one; and for GGUF alone."""
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModuleNotFoundError, match=r"gguf is missing: pip install 'icl-book\[language\]'"):
        models.loading.pretrained(file)
    model = small()
    monkeypatch.setitem(sys.modules, "transformers", None)
    for call in (
        small,
        models.loading.sizes,
        lambda: models.loading.pretrained(tmp_path),
        lambda: models.with_attention(model, lam=1),
    ):
        with pytest.raises(ModuleNotFoundError, match=r"transformers is missing: pip install 'icl-book\[language\]'"):
            call()


def test_importing_the_library_imports_no_transformers():
    """Inside functions only."""
    for node in ast.parse(inspect.getsource(loading)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert not re.search(r"\b(transformers|gguf)\b", ast.unparse(node))


@pytest.mark.parametrize("source", [None, 3, "", "no/such/folder", "missing.gguf"])
def test_what_is_no_source_is_refused(source, as_installed):
    """Before transformers is asked."""
    with pytest.raises(ValueError, match=f"^source must be a folder, a GGUF file or a name on the hub, got {source!r}"):
        models.loading.pretrained(source)


def test_a_folder_or_a_name_without_a_model_is_refused(tmp_path, monkeypatch, as_installed):
    """An empty folder, a file of another kind, and a hub that does not answer, each in its own words."""
    with pytest.raises(ValueError, match=r"^source must hold a model as transformers saves it, got"):
        models.loading.pretrained(tmp_path)
    (tmp_path / "model.txt").write_text("weights")
    with pytest.raises(ValueError, match=r"^source must be a folder, a GGUF file"):
        models.loading.pretrained(tmp_path / "model.txt")

    def silent(*_, **__):
        raise OSError("no route to the hub")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", silent)
    with pytest.raises(ValueError, match=r"^source must be .* a name that the hub has, got 'gpt2'.*did not answer"):
        models.loading.pretrained("gpt2")
    with pytest.raises(ValueError, match=r"^dtype must be torch.float32, .*got torch.int64"):
        models.loading.pretrained("gpt2", dtype=torch.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "bert"}, "kind must be 'gpt2' or 'llama', got 'bert'"),
        ({"width": 30}, "width must be a multiple of heads = 4, .*got 30"),
        ({"width": 12}, "width must be a multiple of heads = 4, with an even quotient .*got 12"),
        ({"key_heads": 3}, "key_heads must be a divisor of heads = 4, got 3"),
        ({"kind": "gpt2", "key_heads": 2}, "key_heads must be None for 'gpt2', got 2"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, message, as_installed):
    """Each with what it got."""
    given = {"kind": "llama", "generator": make_generator("x"), "width": 32, "heads": 4} | changes
    with pytest.raises(ValueError, match=f"^{message}"):
        models.untrained(**given)


@pytest.mark.parametrize("config", [None, "gpt3", 12])
def test_what_is_no_configuration_is_refused(config, as_installed):
    """With what it got."""
    with pytest.raises(ValueError, match=f"^config must be a configuration of transformers or 'gpt2', got {config!r}"):
        models.loading.sizes(config)
