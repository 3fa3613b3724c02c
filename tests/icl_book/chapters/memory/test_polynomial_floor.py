"""Trainings, orders of steps and limits of *The polynomial floor*, at small sizes, against closed forms."""

import chance
import numpy as np
import pytest
import torch

from icl.profile import make_generator
from icl.tasks.quadratics import SECTION_3_3, sample_hessians
from icl.theory import lfom
from icl.theory.lfom import polynomial_floor
from icl_book.chapters.memory import polynomial_floor as chapter
from icl_book.records import recorded

d, n = chapter.d, chapter.n


def test_a_trained_layer_is_at_the_floor():
    """One layer has d x d and one numbers; on many prompts they are n / (n + d + 1) times the identity, nearly."""
    row = chapter.train_memformer(1, seed=0, prompts=2_000, fresh=2_000)
    assert row["trained"] == pytest.approx(d * (d + 1) / (n + d + 1), rel=0.05)
    assert 0 < row["gap"] < 0.02 * row["fresh"]
    assert 0 < row["se"] < row["gap"]


def test_trainings_by_depth_stand_next_to_the_floor():
    """Two depths of five seeds; the gap is in percent of the floor."""
    trainings, seconds = chapter.train_all([1, 2], prompts=50, fresh=50)
    assert seconds > 0
    assert trainings.groupby("layers")["seed"].apply(list).tolist() == [[0, 1, 2, 3, 4]] * 2
    table = chapter.by_depth(trainings)
    np.testing.assert_array_equal(table["floor"], polynomial_floor.optimal_risks(d, n, 2)[1:])
    np.testing.assert_allclose(table["above the floor, %"], 100 * table["gap"] / table["floor"])
    assert table.loc[1, "gap's s.e. over seeds"] == pytest.approx(trainings["gap"][:5].std() / 5**0.5)


def test_the_record_is_of_these_trainings():
    """Its configuration is the module's, and its depths and seeds are those of train_all."""
    run = recorded("mem-floor-trained")
    assert run.provenance["config"] == chapter.TRAINING
    assert sorted(zip(run.table["layers"], run.table["seed"], strict=True)) == [
        (layers, seed) for layers in range(1, 5) for seed in range(5)
    ]


@pytest.mark.statistical
def test_best_polynomial_errors_have_the_floor_for_their_mean():
    """Over 20,000 prompts; the degree-one polynomial in closed form. Detects a fiftieth of the floor."""
    H = sample_hessians(np.eye(d), n, 20_000, generator=make_generator("floor test"))
    t = torch.linalg.eigvalsh(H)
    errors = chapter.best_polynomial_errors(t, 3)
    np.testing.assert_allclose(errors[:, 0], ((1 - n / (n + d + 1) * t.numpy()) ** 2).sum(1), rtol=1e-12)
    off = errors.mean(0) - polynomial_floor.optimal_risks(d, n, 3)[1:]
    chance.assert_z(off / (errors.std(0) / len(errors) ** 0.5))


def test_equal_steps_begin_on_the_floor_and_leave_it():
    """No step and one are all there is of their degree."""
    floor = polynomial_floor.optimal_risks(d, n, 2)
    assert [chapter.best_equal_steps(k) for k in (0, 1)] == pytest.approx(floor[:2], rel=1e-9)
    assert chapter.best_equal_steps(2) > 1.1 * floor[2]


def test_best_subsets_are_least_over_all():
    """Sums of numbers: the smallest ones."""
    found = chapter.best_subsets(np.array([3.0, 1.0, 2.0]), lambda some: float(some.sum()), none=0.0)
    assert found.tolist() == [0, 1, 3, 6]


def test_models_trained_for_the_last_layer_end_on_the_floor():
    """Three layers, one start: all are on the floor at the end and none is below it before."""
    risks = chapter.trained_for_the_last_layer(depth=3, starts=1)
    floor = polynomial_floor.optimal_risks(d, n, 3)
    for found in risks.values():
        assert found[0, -1] == pytest.approx(floor[-1], rel=1e-4)
        assert (found[0] >= floor * (1 - 1e-9)).all()
    assert risks["best sets of plain steps"][0, 1] > 1.01 * floor[1]


def test_orders_of_steps_end_alike():
    """And the register is on the floor everywhere."""
    risks = chapter.orders_of_steps(layers=3)
    floor = risks["polynomial floor"]
    for name in ("short steps first", "long steps first", "spread order"):
        assert risks[name][[0, -1]] == pytest.approx(floor[[0, -1]], rel=1e-9)
        assert (risks[name][1:3] > 1.01 * floor[1:3]).all()
    np.testing.assert_allclose(risks["one register"], floor, rtol=1e-9)


def test_leja_takes_the_largest_root_first_and_then_the_one_farthest_away():
    """Roots 1, 2, 4, 5: after 5 comes 1, at distance 4, and then 2, whose distances multiply to 3 as those of 4 do."""
    assert (1 / chapter.leja(1 / np.array([1.0, 2.0, 4.0, 5.0])))[:2].tolist() == pytest.approx([5, 1])
    steps = polynomial_floor.limit_steps(0.25, 6)
    assert sorted(chapter.leja(steps)) == pytest.approx(sorted(steps))


def test_low_precision_spoils_sorted_steps_alone():
    """Sixteen layers in 50 dimensions; exact arithmetic sees no difference."""
    table = chapter.in_low_precision(prompts=10)
    assert table["end, 53 bits"].to_numpy() == pytest.approx(table["end, 53 bits"].iloc[0], rel=1e-6)
    lost = table["8 bits"] / table["end, 53 bits"]
    assert lost[["one register", "spread order"]].max() < 1.2
    assert lost[["short steps first", "long steps first"]].min() > 1_000
    assert (table["largest on the way"] >= table["end, 53 bits"]).all()


def test_a_trained_register_is_near_the_closed_form():
    """Two layers, where no prompt is rare; the last column is the exact risk."""
    table = chapter.train_register(layers=2, prompts=1_000)
    np.testing.assert_allclose(table["α, trained"], table["α, closed form"], rtol=0.03)
    assert table["γ, trained"].tolist() == pytest.approx(table["γ, closed form"].tolist(), rel=0.1)
    assert table["risk, trained / floor"].between(1, 1.01).all()


def test_plain_steps_leave_more_one_layer_early():
    """Two layers: the better of two steps, against the best single step, in closed form."""
    c = 0.25
    steps = polynomial_floor.limit_steps(c, 2)
    first = min(1 - 2 * a + a**2 * (1 + c) for a in steps)  # moments of the law: 1, 1, 1 + c
    assert chapter.limit_subsets(4, 2)[1] == pytest.approx(first, rel=1e-12)
    assert chapter.early_stop(4, 2) == pytest.approx(first / (c / (1 + c)), rel=1e-12)
    assert chapter.early_stop(4, 8) > chapter.early_stop(1, 8) > chapter.early_stop(0.5, 8) > 1


def test_the_sliders_answer_with_the_librarys_numbers():
    """And have a switch."""
    sliders = chapter.floor_sliders()
    assert f"leaves {chapter.early_stop(4):.2f} times" in sliders.answer
    assert [control["name"] for control in sliders.controls] == ["ratio", "layers", "register"]


def test_conjugate_gradients_end_above_the_floor_in_the_limit():
    """One step by hand, many steps by 1 + c; and at d = 200 they are near it."""
    c = 0.25
    ratios = chapter.conjugate_gradient_limit(c, 40)
    assert ratios[-1] == pytest.approx(1 + c, rel=1e-6)
    # The first step of conjugate gradients is m1 / m2 of t dm: (1 + c) / (1 + 3c + c^2).
    a = (1 + c) / (1 + 3 * c + c**2)
    assert ratios[1] == pytest.approx((1 - 2 * a + a**2 * (1 + c)) / (c / (1 + c)), rel=1e-12)
    mean, se = chapter.from_floor_to_cg(200, 800, 2, 20)
    assert mean["preconditioned CG"][2] / mean["polynomial floor"][2] == pytest.approx(ratios[2], rel=0.1)
    assert se["preconditioned CG"].all()


def test_registers_by_dimension_tend_to_their_limit():
    """And the limit to Polyak's numbers: 1 and d / n."""
    table = chapter.registers_by_dimension(sizes=(5, 40), layers=3)
    off = table.sub(table.loc["limit"]).abs()
    assert (off.loc["d = 40"] < off.loc["d = 5"]).all()
    assert table.loc["Polyak"].tolist() == pytest.approx([1, 1, 1, 0.25, 0.25])


def test_prompt_polynomials_are_least_squares():
    """Degree two, three eigenvalues, weights: against the normal equations; with all three roots nothing is left."""
    t, weight = torch.tensor([[0.3, 1.0, 2.0]]).double(), torch.tensor([[1.0, 0.5, 2.0]]).double()
    found = chapter.prompt_polynomials(t, weight, 4)[0].numpy()
    nodes, w = t[0].numpy(), np.sqrt(weight[0].numpy())
    columns = np.stack([nodes, nodes**2], 1)
    c = np.linalg.lstsq(w[:, None] * columns, -w, rcond=None)[0]
    np.testing.assert_allclose(found[2], 1 + columns @ c, atol=1e-12)
    np.testing.assert_allclose(found[3:], 0, atol=1e-9)


def test_who_knows_more_has_less_error():
    """At four layers: the floor, the own spectrum, the oracle that sees the answer, conjugate gradients between."""
    mean, _ = chapter.from_floor_to_cg(d, n, 4, 2_000)
    last = mean.iloc[-1]
    assert last["own answer"] < last["preconditioned CG"] < last["own spectrum"] < last["polynomial floor"]
    assert chapter.solver_residue(prompts=50) < 1e-9


def test_conjugate_gradients_without_the_covariance_begin_at_d_and_end_at_0():
    """In as many steps as there are dimensions."""
    errors = chapter.conjugate_gradients(SECTION_3_3, d, 500, "test of CG")
    assert errors[0] == pytest.approx(d, rel=0.15)
    assert errors[-1] < 1e-9


def test_rivals_as_printed_are_far_above_the_floor():
    """One step of both methods is one of gradient descent without 1/Sigma, whose risk is in closed form."""
    found = {(r.method, r.convention): r for r in chapter.rivals(steps=1, prompts=2_000)}
    assert set(found) == {(m, c) for m in ("Nesterov", "momentum") for c in ("D", "D²")}
    D, floor = SECTION_3_3, polynomial_floor.optimal_risks(d, n, 1)[1]
    # In white coordinates the Hessian is D times that of white inputs.
    trace, square = D.sum(), (D**2).sum() * (n + d + 1) / n
    for method, eta in (("Nesterov", 0.03), ("momentum", 0.005)):
        assert found[method, "D"].printed * floor == pytest.approx(d - 2 * eta * trace + eta**2 * square, rel=1e-2)
    least = d - trace**2 / square
    assert found["momentum", "D"].tuned * floor == pytest.approx(least, rel=0.03)


def test_gauss_nodes_average_polynomials():
    """Of degree five with three nodes, exactly."""
    t = torch.rand(50, generator=make_generator("gauss test"), dtype=torch.float64)
    nodes, weights = chapter.gauss(t, 3)
    for power in range(6):
        assert (weights @ nodes**power).item() == pytest.approx((t**power).mean().item(), rel=1e-12)


def test_a_table_trained_on_eigenvalues_is_conjugate_gradients_on_the_stack():
    """Three layers in four dimensions; the register of the stack has the same exact risks, just above the floor."""
    trained = chapter.train_on_eigenvalues(size=4, layers=3, prompts=500)
    stacked = chapter.excess_by_prompts([500], size=4, layers=3)[500]
    floor = polynomial_floor.optimal_risks(4, n, 3)[1:]
    np.testing.assert_allclose(trained / floor, stacked, rtol=1e-4)
    assert (stacked >= 1).all()
    H = sample_hessians(np.eye(4), n, 500, generator=make_generator("LFOM 4")).numpy()
    Gamma = lfom.registers(*polynomial_floor.fitted_registers(H, None, 3))
    np.testing.assert_allclose(stacked, (lfom.table_risks(Gamma, 4, n) / polynomial_floor.optimal_risks(4, n, 3))[1:])
