"""Causal models: the interface of models that predict every position of a prompt in one pass.

A model that reads strictly earlier tokens only treats each position as a query. Its `errors` at all of them cost as
much as the one at the end, and training on all of them is the two-stream loss: every example is also a query.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl import _checks
from icl._bounds import Natural, validated
from icl.tasks import Prompt


class Causal(nn.Module):
    """A model of (x_i, y_i) pairs that predicts each label from the pairs before it."""

    d: int

    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, y_hat_j from the pairs before j and x_j alone."""
        raise NotImplementedError

    def checked(self, x: Tensor, y: Tensor) -> None:
        """Refuse a batch of prompts that does not match this model."""
        _checks.shape("x", x, (None, None, self.d), "to match the model")
        _checks.shape("y", y, tuple(x.shape[:2]), "to match x")
        _checks.dtype("y", y, x.dtype, "to match x")
        for name, parameter in self.named_parameters():
            _checks.dtype("x", x, parameter.dtype, f"to match the model's parameter {name}")
        if x.shape[1] == 0:
            raise ValueError("x must hold at least one position in time, got 0")

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label."""
        Z = prompt.tokens()
        return -self.errors(Z[..., :-1], Z[..., -1])[:, -1]

    @validated
    def predictions(self, prompt: Prompt) -> Float[Tensor, "batch time"]:
        """Predict every label from the tokens before it; its own enters by rounding only."""
        return prompt.y - self.errors(prompt.x, prompt.y)

    @validated
    def loss(self, prompt: Prompt, *, since: Natural = 0) -> Float[Tensor, ""]:
        """Mean squared error over prompts and positions since .. n; position i is a query after i examples."""
        if since > prompt.n:
            raise ValueError(f"since must be at most n = {prompt.n}, got {since}")
        return self.errors(prompt.x, prompt.y)[:, since:].square().mean()


class Normalised(Causal):
    """Input normalisation in front of a model: every input scaled to length sqrt(d), its label in proportion.

    (x_i, y_i) -> (x_i, y_i) sqrt(d) / ||x_i||, errors multiplied back. No information is lost where y_i = <w_i, x_i>.
    f(c X, c y) = c f(X, y) for every c, and no prompt is an outlier by the lengths of its inputs. An input of length 0
    is left unchanged.

    Args:
        model: applied to the normalised prompts.
    """

    @validated
    def __init__(self, model: Causal) -> None:
        """Keep the model."""
        super().__init__()
        self.model, self.d = model, model.d

    @validated
    def errors(self, x: Float[Tensor, "batch time d"], y: Float[Tensor, "batch time"]) -> Float[Tensor, "batch time"]:
        """y_j - y_hat_j at every position, in the units of y."""
        self.checked(x, y)
        length = self._lengths(x)
        return self.model.errors(x / length.unsqueeze(-1), y / length) * length

    @validated
    def forward(self, prompt: Prompt) -> Float[Tensor, " batch"]:
        """Predict the query's label."""
        length = self._lengths(prompt.x)
        scaled = Prompt(prompt.x / length.unsqueeze(-1), prompt.y / length, prompt.w)
        answer: Tensor = self.model(scaled)
        return answer * length[:, -1]

    def _lengths(self, x: Tensor) -> Tensor:
        """|x_j| / sqrt(d), and 1 where that is 0."""
        length = torch.linalg.vector_norm(x, dim=-1) / self.d**0.5
        return torch.where(length > 0, length, 1.0)
