"""A Memformer's exact risks against measured ones, and the law that parameters are drawn from."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from icl.models.memformer import Fixed, Free, Full, Memformer, OneRegister, TokenWise, scatter
from icl.profile import streams
from icl.tasks import StationaryRegression

DRAWS = 200_000


@pytest.mark.parametrize("kind", ["one register", "token-wise", "GD++"])
def test_measured_errors_are_the_risks(kind):
    """Given a prompt's inputs, (prediction - label)^2 over queries and weights has the mean that `risks` says.

    200,000 draws of x_q ~ N(0, Sigma) and w* ~ N(0, Sigma^-1) for one set of four inputs, predictions read off the
    tokens. |z| is below 6.1 at every layer, which by the central limit theorem fails by chance with probability 1e-9;
    a standard error is below 2 % of the risk, so that 12 % are seen. Planted: Sigma^-1 for Sigma in `risks` is seen.
    """
    d, n, L = 3, 4, 2
    generator = streams("measured risks")
    Sigma = np.diag([3.0, 1.0, 0.3]) + 0.2
    A = torch.randn(2, L, d, d, generator=generator, dtype=torch.float64) / 4
    model = {
        "one register": Memformer(Fixed(A[0]), OneRegister(L)),
        "token-wise": Memformer(Fixed(A[0]), TokenWise(L, n)),
        "GD++": Memformer(Fixed(A[0]), Free(L), Fixed(A[1])),
    }[kind]
    with torch.no_grad():
        for p in model.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    task = StationaryRegression(d=d, n=n, Lambda=Sigma, Sigma_w=np.linalg.inv(Sigma))
    prompt = task.sample(DRAWS, generator=generator, dtype=torch.float64)
    # The inputs of the first prompt for all; queries and weights, hence labels, their own.
    prompt.x[:, :-1] = prompt.x[:1, :-1].clone()
    prompt.y.copy_((prompt.x * prompt.w).sum(-1))
    with torch.no_grad():
        squares = (-model.states(prompt)[:, :, -1, -1] - prompt.y[:, -1:]).square()
        risks = model.risks(prompt.x[:1, :-1], Sigma)[0]
    error = squares.std(0) / DRAWS**0.5
    assert (((squares.mean(0) - risks) / error).abs() < stats.norm.isf(1e-9 / 2)).all()
    assert (error < 0.02 * risks).all()


def test_scattered_parameters_are_normal():
    """Drawn parameters have the law N(0, scale^2): mean and variance of 40,000 of them, and their whole distribution.

    Mean, variance (chi-square) and the Kolmogorov-Smirnov statistic each fail by chance with probability 1e-9: a mean
    off by 4 % of the scale, a variance off by 5 %, another law off by 2 % somewhere are seen.
    """
    model, scale = Full(100, 4), 1e-4
    scatter(model, scale, generator=streams("scattered"))
    z = model.matrices.detach().numpy().ravel() / scale
    assert abs(z.mean()) * len(z) ** 0.5 < stats.norm.isf(1e-9 / 2)
    low, high = stats.chi2.ppf([0.5e-9, 1 - 0.5e-9], len(z)) / len(z)
    assert low < (z**2).mean() < high
    assert stats.kstest(z, "norm").pvalue > 1e-9


def test_scatter_draws_the_parameters_named():
    """Names choose parameters by any part of theirs; others stay bit for bit. All are drawn without a name.

    The draws are those of the stream, in the parameters' order, and no parameter gets another's.
    """
    L = 3

    def scattered(names, scale=0.5):
        model = Memformer(Full(2, L), OneRegister(L))
        scatter(model, scale, generator=streams("scattered"), names=names)
        return dict(model.named_parameters())

    start = dict(Memformer(Full(2, L), OneRegister(L)).named_parameters())
    assert set(start) == {"preconditioner.matrices", "memory.alpha", "memory.gamma"}
    for names, drawn in (
        (("alpha",), {"memory.alpha"}),
        (("memory",), {"memory.alpha", "memory.gamma"}),
        (("gamma", "matrices"), {"preconditioner.matrices", "memory.gamma"}),
        ((), set(start)),
    ):
        generator, found = streams("scattered"), scattered(names)
        for name, parameter in found.items():
            if name in drawn:
                expected = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                assert torch.equal(parameter, expected)
            else:
                assert torch.equal(parameter, start[name])
    single = nn.Linear(2, 3)
    scatter(single, 1.0, generator=streams("scattered"))
    assert torch.equal(single.weight, torch.randn(3, 2, generator=streams("scattered")))
