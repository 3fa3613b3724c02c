"""What is asked: prompts, the laws that draw them, their noise, and a real series as one prompt.

- `components`: Gaussian mixtures whose components have means of their own
- `core`: prompts, tasks, laws of inputs; stationary, AR(1) and smooth drift
- `drifts`: drifts of higher order, regime switching, heavy tails
- `mixtures`: prompts of several laws in one batch
- `noise`: labels with noise
- `objectives`: problems whose loss need not be a square
- `quadratics`: quadratics: the problems that first-order methods run on
- `rules`: a language whose label words follow a rule that drifts
- `sentences`: demonstrations from a table of labelled features
- `series`: a real series as one prompt, its drift by likelihood
- `speeds`: drift whose speed is drawn for each prompt and told to nobody
- `text`: prompts of labelled sentences, in the tokens of a language model
"""

from icl.tasks import (
    components,
    core,
    drifts,
    mixtures,
    noise,
    objectives,
    quadratics,
    rules,
    sentences,
    series,
    speeds,
    text,
)
from icl.tasks.components import ComponentPrompt, GaussianComponents
from icl.tasks.core import (
    GAUSSIAN,
    LAPLACE,
    RADEMACHER,
    UNIFORM,
    DriftingRegression,
    InputLaw,
    Prompt,
    Regression,
    SmoothDrift,
    StationaryRegression,
    Task,
    blocks,
    square_root,
)
from icl.tasks.drifts import DrawnSteps, HeavyTailedDrift, LinearDrift, RegimeSwitching, ar2, sinusoids, two_timescales
from icl.tasks.mixtures import ManyDrifts, Mixture
from icl.tasks.noise import Noisy, clean, noise_level
from icl.tasks.objectives import Cauchy, Huber, Logistic, Objective, Quartic, Square
from icl.tasks.quadratics import (
    SECTION_3_3,
    SQUARED,
    covariance,
    hessians,
    largest_curvature,
    mean_curvature,
    regression,
    rotation,
    sample_hessians,
    weighted_curvature,
)
from icl.tasks.rules import RuleLanguage, WordPrompt, word_vectors
from icl.tasks.sentences import Demonstrations, LabelledRows, packed, shuffled, unpacked
from icl.tasks.series import (
    Drift,
    Series,
    WeightPath,
    as_prompt,
    filtered,
    mean_and_error,
    most_likely,
    prepare,
    smoothed,
)
from icl.tasks.speeds import UnknownDrift
from icl.tasks.text import (
    TEXT_CLASSES,
    InContextText,
    LabelledTexts,
    TextPrompt,
    encoded,
    labelled_texts,
)

__all__ = [
    "GAUSSIAN",
    "LAPLACE",
    "RADEMACHER",
    "SECTION_3_3",
    "SQUARED",
    "TEXT_CLASSES",
    "UNIFORM",
    "Cauchy",
    "ComponentPrompt",
    "Demonstrations",
    "DrawnSteps",
    "Drift",
    "DriftingRegression",
    "GaussianComponents",
    "HeavyTailedDrift",
    "Huber",
    "InContextText",
    "InputLaw",
    "LabelledRows",
    "LabelledTexts",
    "LinearDrift",
    "Logistic",
    "ManyDrifts",
    "Mixture",
    "Noisy",
    "Objective",
    "Prompt",
    "Quartic",
    "RegimeSwitching",
    "Regression",
    "RuleLanguage",
    "Series",
    "SmoothDrift",
    "Square",
    "StationaryRegression",
    "Task",
    "TextPrompt",
    "UnknownDrift",
    "WeightPath",
    "WordPrompt",
    "ar2",
    "as_prompt",
    "blocks",
    "clean",
    "components",
    "core",
    "covariance",
    "drifts",
    "encoded",
    "filtered",
    "hessians",
    "labelled_texts",
    "largest_curvature",
    "mean_and_error",
    "mean_curvature",
    "mixtures",
    "most_likely",
    "noise",
    "noise_level",
    "objectives",
    "packed",
    "prepare",
    "quadratics",
    "regression",
    "rotation",
    "rules",
    "sample_hessians",
    "sentences",
    "series",
    "shuffled",
    "sinusoids",
    "smoothed",
    "speeds",
    "square_root",
    "text",
    "two_timescales",
    "unpacked",
    "weighted_curvature",
    "word_vectors",
]
