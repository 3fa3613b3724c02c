"""Valid calls of the library, and what each refuses beside what its annotations exclude: a table for each room.

Three tests of the whole library stand on them: refusals by hand, devices and precisions.
"""

import inspect

from house.calls import bench, experiments, filters, models, tasks, theory, training
from house.calls.base import ENTRIES, call_of
from house.public import INSIDE, OTHERS, PUBLIC, RESULTS, named

__all__ = ["ASKED_OF", "ENTRIES", "TABLES", "call_of"]

TABLES = [tasks, filters, experiments, models, training, bench, theory]

#: Bases that only their subclasses make whole; and what has no call that is quick to make, tested in its own place:
#: language models, which take seconds to import, prompts of text, checkpoints and rows of whole runs.
NO_CALL = named("""
    icl.experiments.checkpoint: check_compatible read write
    icl.experiments.training: Samples
    icl.models.causal: Causal
    icl.models.fast_weights: DecayingWeights FastWeights Gate LinearReadout
    icl.models.loading: pretrained sizes untrained
    icl.models.memformer: Memory
    icl.models.surgery: forgetting generate logits_at with_attention
    icl.profile: by_profile
    icl.tasks.core: Task
    icl.tasks.text: InContextText LabelledTexts encoded labelled_texts
    icl.theory.errata.adaptation: printed_identity_error printed_testing_error printed_training_error
    icl_bench.adapters: MambaPy body_of build_config
    icl_bench.adapters.Body: state_numel
    icl_bench.adapters.MambaPy: state_numel
    icl_bench.leaderboard: row submit write_row
    icl_book.chapters.attention_swap: compare_attentions gate_unit gates_learned label_shares swap swap_unit
    icl_book.chapters.lm_init: first_layers match_scale shorten_gate_memory
    icl_book.chapters.rule_models: blank_model compare_variants model_answers rule_logits rule_loss train_variant
    icl_book.chapters.text_finetuning: answered commonest fine_tune judge_text label_logits label_loss
    icl_book.exercises: seal
    icl_book.grading: earn
""")
_LEFT_OUT = {PUBLIC[name][0] for name in RESULTS | INSIDE | OTHERS | NO_CALL}
_BASES = {
    PUBLIC[f"icl.{name}"][0]
    for name in (
        *("filters.Filter", "models.causal.Causal", "models.fast_weights.FastWeights"),
        *("models.fast_weights.DecayingWeights", "models.fast_weights.LinearReadout"),
        *("tasks.core.Regression", "tasks.objectives.Objective"),
    )
}
#: What is called: each public function, class and method, with the class of a method.
ASKED_OF = {
    name: (function, kind)
    for name, (function, kind) in PUBLIC.items()
    if function not in _LEFT_OUT and kind not in _BASES and inspect.signature(function).parameters
}
