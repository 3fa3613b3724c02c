"""What no annotation can say is refused by hand, by name: the rows of the tables in `calls`.

Each has one valid call; then some arguments are changed, and the call has to raise ValueError whose message begins as
the row says. A failure lists every row that was let in, or refused in other words.
"""

import inspect
import re

import numpy as np
import pytest
import torch
from house.calls import ASKED_OF, ENTRIES, call_of
from house.public import named

from icl.models.causal import Causal

pytestmark = pytest.mark.usefixtures("as_installed")


def key_of(name):
    """The key of a function's entry in the table."""
    function, kind = ASKED_OF[name]
    return (kind, function.__name__) if (kind, function.__name__) in ENTRIES else function


BY_HAND = [name for name in ASKED_OF if key_of(name) in ENTRIES and ENTRIES[key_of(name)].also]


# What torch does not yet give numpy 2 is between the two.
@pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")
@pytest.mark.parametrize("name", BY_HAND)
def test_what_a_check_by_hand_excludes_is_refused_by_name(name):
    """Each row of a function's table raises ValueError with the row's words."""
    call = call_of(*ASKED_OF[name])
    call()
    failures = []
    for changes, message in call.also(call) if inspect.isfunction(call.also) else call.also:
        what = ", ".join(f"{argument} = {value!r:.40}" for argument, value in changes.items())
        try:
            call(**changes)
        except ValueError as refusal:
            if not re.search(f"^{message}", str(refusal), re.DOTALL):
                failures.append(f"{what}: refused in other words: {refusal!s:.150}")
        except Exception as error:
            failures.append(f"{what}: {type(error).__name__}: {error!s:.150}")
        else:
            failures.append(f"{what}: let in")
    assert not failures, f"{name}:\n" + "\n".join(failures)


def spoilt(value):
    """An array whose last entry is NaN."""
    value = value.detach().clone() if isinstance(value, torch.Tensor) else np.array(value, dtype=float)
    value[(-1,) * value.ndim] = np.nan
    return value


def longer(value):
    """An array whose last axis is seven times as long."""
    joined = np.concatenate([np.asarray(value.detach() if isinstance(value, torch.Tensor) else value)] * 7, axis=-1)
    return torch.from_numpy(joined) if isinstance(value, torch.Tensor) else joined


def larger(value):
    """An array with all axes longer."""
    return np.pad(value, 1)


def recast(value):
    """A tensor in the other dtype."""
    return value.to(torch.float32 if value.dtype == torch.float64 else torch.float64)


def lopsided(_):
    """A matrix that is no covariance."""
    return [[1.0, 0.5], [0.4, 1.0]]


def chars(value):
    """Text in place of numbers."""
    return np.asarray(value).astype(str)


def one_column(value):
    """An array with an axis more."""
    return np.asarray(value)[..., None]


def empty(_):
    """No name."""
    return ""


#: Arguments whose entries, sizes and dtypes are checked by hand, against the task, law or model beside them.
WRONG = {
    spoilt: """
    icl.convex: shared_minimiser.basis
    icl.experiments.evaluation: series_risks.y
    icl.experiments.training_variants: train_side_by_side.theta
    icl.filters: run_filter.x run_filter.y run_filter.w_0 track.x track.y track.w_0
    icl.solvers: run_solver.H run_solver.b run_solver.w_0 conjugate_scalars.H conjugate_scalars.b
    icl.tasks.components.GaussianComponents: posterior.X
    icl.tasks.quadratics: mean_curvature.H weighted_curvature.H largest_curvature.H
    icl.tasks.series: mean_and_error.z prepare.inputs prepare.labels
    icl_book.chapters.coefficient_fit: Target.H Target.rows Target.start risk_targets.H prompt_losses.Lambda
    icl_book.chapters.coefficient_fit: fit_diagonals.Lambda
    icl_book.chapters.distribution_shift: rescale.X
    icl_book.chapters.importance_sampling: sample_scaled.Z corrected_risks.A corrected_risks.Gamma
    """,
    longer: """
    icl.convex: shared_minimiser.basis
    icl.models.convolved.Convolved: gates.x
    icl.models.experts.MultiHead: errors.X risks.X
    icl.models.experts.OutputMixture: errors.X risks.X
    icl.models.memformer.Memformer: errors.X risks.X
    icl.models.one_layer: predict_from_features.A
    icl.tasks.components.GaussianComponents: posterior.X
    icl.tasks.sentences.LabelledRows: accuracy.w
    icl.tasks.series: prepare.labels
    icl.theory.floors.filtering: kalman_risk.x best_linear_errors.x expected_errors.x gaussian_errors.x genie_errors.x
    icl.theory.floors.filtering: linear_drift_errors.x query_errors.x switching_predictions.x kalman_errors.x
    icl.theory.floors.joint: label_errors.x
    icl.theory.floors.label_rule: positive_probability.x
    icl.theory.floors.unknown_drift: bank_predictions.x linear_predictions.x
    icl.theory.gates.key_gates: from_drift_law.spectrum
    icl.theory.one_layer.population.PopulationLoss: gradient.theta parts.theta value.theta
    icl.theory.steady.fast_weights: delta_shared.spectrum gla_shared.spectrum gla_per_channel.spectrum
    icl.theory.steady.fast_weights: delta_diagonal.spectrum
    icl.theory.steady.spectra: corrected_floor.spectrum
    icl_bench.sequence.InContext: answers.x errors.x
    icl_book.chapters.distribution_shift: rescale.X
    """,
    larger: """
    icl.theory.floors.joint: misspecified_errors.x misspecified_errors.kernel
    icl.theory.gates.finite_key_gates: finite_bound.keys finite_ladder.keys gated_error.keys search_gates.keys
    icl.theory.gates.key_gates: averaged_step.P data_free_step.P best_layer_answers.P best_layer_answers.x
    icl.theory.gates.key_gates: windowed_errors.x windowed_errors.prior per_coordinate.spectrum
    icl.theory.gates.key_gates.MovingWeights: error.P
    icl.theory.one_layer.closed_forms: layer_risk.A
    icl.theory.one_layer.population: gradient_flow.start linear_rate.minimum
    icl.theory.one_layer.population.PopulationLoss: hessian.theta
    icl.theory.one_layer.separate_qk: separate_flow.start
    icl.theory.one_layer.separate_qk.SeparateLoss: split.z theta.z value.z gradient.z hessian.z
    icl.theory.one_layer.sign_flips: sign_layer_error.A
    icl.theory.steady.cheap_covariance: errors_with_gains.x errors_with_gains.Lambda
    icl.theory.steady.cheap_covariance: summary_errors.x summary_errors.Lambda
    """,
    recast: """
    icl.models.experts.ConvexGate: forward.H
    icl.models.experts.FreeGate: forward.H
    icl.models.experts.MultiHead: blocks.H errors.X gates.H risks.X
    icl.models.experts.OutputMixture: errors.X gates.H risks.X
    icl.models.experts.PromptGate: forward.H
    icl.models.memformer.Memformer: errors.X risks.X
    icl.models.s6.S6: forward.u
    icl.models.s6.S6Stack: forward.u
    icl.models.scalar_heads.ScalarHeads: errors.X
    """,
    lopsided: """
    icl.tasks.core: DriftingRegression.Lambda SmoothDrift.Lambda
    icl.tasks.core: StationaryRegression.Lambda StationaryRegression.Sigma_w
    icl.tasks.drifts: HeavyTailedDrift.Lambda LinearDrift.Lambda LinearDrift.P_0 LinearDrift.Q RegimeSwitching.Lambda
    icl.tasks.quadratics: regression.Sigma sample_hessians.Sigma
    icl.tasks.unknown_drift: UnknownDrift.Lambda
    icl_book.chapters.coefficient_fit: risk_targets.Sigma
    """,
    chars: """
    icl.experiments.evaluation: series_risks.y
    icl.tasks.series: mean_and_error.z prepare.inputs prepare.labels
    icl.theory.one_layer.population.PopulationLoss: gradient.theta parts.theta value.theta
    """,
    one_column: """
    icl.experiments.evaluation: series_risks.y
    icl.models.one_layer: predict_from_features.A
    icl.tasks.series: mean_and_error.z prepare.inputs prepare.labels
    """,
    empty: """
    icl.experiments.grid: Grid.stream
    icl.experiments.grid.Grid: fingerprint.task
    icl.profile: make_generator.name
    icl_bench.adapters: is_installed.package hugging_face.name
    icl_bench.budgets: Budget.name
    icl_bench.comparison: tuned_for.stream
    icl_bench.custom_task: CustomTask.name
    icl_bench.entries: resolve.kind
    icl_bench.leaderboard: read_rows.folder
    icl_bench.report: write_report.against
    icl_bench.results: paired_comparison.one paired_comparison.other
    icl_bench.runner: plan.budget plan.train run.dask run.folder
    icl_bench.runner.Plan: tests.trained_on
    icl_bench.tasks: BenchTask.about BenchTask.name BenchTask.title
    icl_bench.training_jobs: prompts_for.name
    icl_bench.validation: validate_model.name
    icl_book.chapters.key_gated_layers: gated_layer.fed gated_layer.layer gated_run.fed gated_run.layer
    """,
}
WRONG = [(change, name.rpartition(".")) for change, text in WRONG.items() for name in sorted(named(text))]
LAYERS = [name for name, (_, kind) in ASKED_OF.items() if kind and issubclass(kind, Causal)]
WRONG += [(longer, (name, "", "x")) for name in LAYERS if name.endswith((".errors", ".read", ".step"))]
WRONG += [(recast, (name, "", "x")) for name in LAYERS if name.endswith((".errors", ".read"))]


@pytest.mark.parametrize(
    ("change", "place"), WRONG, ids=lambda each: each.__name__ if callable(each) else f"{each[0]}.{each[2]}"
)
def test_an_argument_that_does_not_match_is_refused_by_name(change, place):
    """ValueError names the argument, or of two that disagree the other."""
    name, _, argument = place
    call = call_of(*ASKED_OF[name])
    names = "|".join((argument, *call.parameters))
    with pytest.raises(ValueError, match=rf"^({names})\b.* (must|needs|has) "):
        call(**{argument: change(call.given.get(argument))})


def test_every_entry_is_of_something_that_is_asked():
    """Nothing is left in the tables of what has gone or has another name."""
    functions = {function for function, _ in ASKED_OF.values()}
    methods = {(kind, function.__name__) for function, kind in ASKED_OF.values()}
    assert ENTRIES.keys() <= functions | methods
