/* The closed forms that explorables recompute in the reader's browser. Each mirrors a function of the library, named
   beside it; tests/browser compares the two. Inputs have covariance I here. */
"use strict";
window.icl = (() => {
  /* icl.theory.moments.recursion */
  function moments({lam, gamma, n, sigma_w = 1, sigma_e = 0.1}) {
    let D1 = 0, D2 = 0, D3 = 0, k = gamma ** 2 * sigma_w ** 2 + sigma_e ** 2;
    for (let i = 0; i < n; i++) {
      D3 = lam ** 2 * (D3 + 2 * D1);
      D2 = lam ** 2 * (D2 + k);
      D1 = lam * gamma * (D1 + k);
      k = gamma ** 2 * k + sigma_e ** 2;
    }
    return {D1, D2, D3, D4: k};
  }

  /* icl.theory.gla.training_error, Lambda = I: d (D4 - D1^2 / a), a = (d + 2) D2 + D3 */
  function trainingError({d, ...task}) {
    const {D1, D2, D3, D4} = moments(task), a = (d + 2) * D2 + D3;
    return d * (D4 - (a > 0 ? D1 ** 2 / a : 0));
  }

  /* icl.theory.gla.testing_error, Lambda = I on both sides: A = D1 / a of the training task, all else of the test's */
  function testingError(train, {d, ...test}) {
    const {D1, D2, D3} = moments(train), gain = D1 / ((d + 2) * D2 + D3), now = moments(test);
    return d * (now.D4 - 2 * gain * now.D1 + gain ** 2 * ((d + 2) * now.D2 + now.D3));
  }

  /* icl.theory.gla.zero_predictor */
  const zeroPredictor = ({d, ...task}) => d * moments({...task, lam: 0}).D4;

  /* Where a function that falls and then rises between low and high is least. */
  function goldenSection(f, low, high) {
    const ratio = (Math.sqrt(5) - 1) / 2;
    while (high - low > 1e-10) {
      const a = high - ratio * (high - low), b = low + ratio * (high - low);
      if (f(a) < f(b)) high = b; else low = a;
    }
    return (low + high) / 2;
  }

  /* icl.theory.gla.optimal_forgetting: a grid, then golden section */
  function optimalForgetting(task) {
    const error = lam => trainingError({...task, lam});
    let best = 1;
    for (let i = 1; i <= 400; i++) if (error(i / 400) <= error(best)) best = i / 400;
    const found = goldenSection(error, Math.max(best - 1 / 400, 0), Math.min(best + 1 / 400, 1));
    return error(1) <= error(found) ? 1 : found;
  }

  /* icl.theory.filters.steady_error, Lambda = I and Gaussian inputs: every direction is alike, one number carries each. */
  function steadyError({gamma, d, sigma_e = 1}, mu, {lam = 1, normalised = false} = {}) {
    const k = sigma_e ** 2 / (1 - gamma ** 2), s = normalised ? 1 / d : 1, square = normalised ? 1 / d : d + 2;
    if (mu === 0 && lam === 1) return d * k;
    const kept = gamma * lam * (1 - mu * s), c = gamma * lam * mu * s * k / (1 - kept);
    const left = 1 - lam ** 2 * (1 - 2 * mu * s + mu ** 2 * square);
    const a = lam ** 2 * (2 * mu * s * c + mu ** 2 * square * (k - 2 * c)) / left;
    return left > 0 && Math.abs(kept) < 1 ? d * (k - 2 * c + a) : Infinity;
  }

  /* What icl.theory.gla.training_error tends to as the prompt grows: D1, D2, D3 are sums of geometric series. */
  function steadyGated({gamma, d, sigma_e = 1}, lam) {
    const k = sigma_e ** 2 / (1 - gamma ** 2), D1 = k * lam * gamma / (1 - lam * gamma);
    const D2 = k * lam ** 2 / (1 - lam ** 2), D3 = 2 * D2 * lam * gamma / (1 - lam * gamma);
    return d * (k - D1 ** 2 / ((d + 2) * D2 + D3));
  }

  /* Standard normals from a fixed seed (mulberry32, Box-Muller), so that a figure is the same at every visit. */
  function normals(count, seed) {
    const uniform = () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return Float64Array.from({length: count}, () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
  }

  /* One step of icl.theory.kalman's Riccati recursion, in place; with a residual it also moves the estimate m. */
  function kalmanStep(P, x, {d, gamma, sigma_e}, m = null, y = 0) {
    const Px = new Float64Array(d);
    let s = 0, error = y;
    for (let i = 0; i < d; i++) {
      for (let j = 0; j < d; j++) Px[i] += P[i * d + j] * x[j];
      s += x[i] * Px[i];
      if (m) error -= m[i] * x[i];
    }
    for (let i = 0; i < d; i++) {
      for (let j = 0; j < d; j++) {
        P[i * d + j] = gamma ** 2 * (P[i * d + j] - (s > 1e-300 ? Px[i] * Px[j] / s : 0)) + (i === j ? sigma_e ** 2 : 0);
      }
      if (m) m[i] = gamma * (m[i] + (s > 1e-300 ? Px[i] / s * error : 0));
    }
  }

  const startCovariance = ({d, gamma, sigma_w, sigma_e}) =>
    Float64Array.from({length: d * d}, (_, i) => i % (d + 1) ? 0 : gamma ** 2 * sigma_w ** 2 + sigma_e ** 2);

  /* icl.theory.kalman.risk at the query, over `sequences` fixed random input sequences */
  function kalmanFloor({d, n, gamma, sigma_w = 1, sigma_e}, sequences = 40) {
    const x = normals(sequences * n * d, 1);
    let total = 0;
    for (let b = 0; b < sequences; b++) {
      const P = startCovariance({d, gamma, sigma_w, sigma_e});
      for (let t = 0; t < n; t++) kalmanStep(P, x.subarray((b * n + t) * d, (b * n + t + 1) * d), {d, gamma, sigma_e});
      for (let i = 0; i < d; i++) total += P[i * d + i];
    }
    return total / sequences;
  }

  /* icl.theory.kalman.risk in the steady state: over the last 50 of 150 positions of fixed random input sequences, for
     weights that have been drifting forever */
  function steadyFloor({d, gamma, sigma_e = 1}, sequences = 40) {
    const n = 150, last = 50, sigma_w = sigma_e / Math.sqrt(1 - gamma ** 2), x = normals(sequences * n * d, 1);
    let total = 0;
    for (let b = 0; b < sequences; b++) {
      const P = startCovariance({d, gamma, sigma_w, sigma_e});
      for (let t = 0; t < n; t++) {
        if (t >= n - last) for (let i = 0; i < d; i++) total += P[i * d + i];
        kalmanStep(P, x.subarray((b * n + t) * d, (b * n + t + 1) * d), {d, gamma, sigma_e});
      }
    }
    return total / sequences / last;
  }

  /* icl.tasks.DriftingRegression.weight_kernel, its diagonal: k_00, k_11 .. k_{n+1,n+1} */
  function weightVariances({gamma, n, sigma_w = 1, sigma_e = 0.1}) {
    const k = [sigma_w ** 2];
    for (let i = 0; i <= n; i++) k.push(gamma ** 2 * k[i] + sigma_e ** 2);
    return k;
  }

  /* The first position at which w_0 accounts for less than `share` of the variance, gamma^2i sigma_w^2 < share k_ii;
     Infinity where that never happens. */
  function startForgotten({gamma, sigma_w = 1, sigma_e = 0.1}, share = 0.01) {
    const odds = (1 / share - 1) * sigma_w ** 2 / sigma_e ** 2;  // what (1 + .. + gamma^(2i-2)) / gamma^2i must exceed
    for (let i = 0, sum = 0, power = 1; i <= 1e7; i++) {
      if (sum > odds * power) return i;
      if (power > 1e250) return Infinity;
      sum += power;
      power *= gamma ** 2;
    }
    return Infinity;
  }

  /* After how many examples the correlation of the weights has halved, in the steady state. */
  const halfLife = gamma => gamma < 1 ? Math.LN2 / -Math.log(gamma) : Infinity;

  /* So many significant digits, never an exponent. */
  const fixed = (value, digits = 3) => new Intl.NumberFormat("en", {maximumSignificantDigits: digits}).format(value);

  /* What is left of the error along an eigenvector of eigenvalue z, a row of icl.theory.lfom.polynomials at z: after each
     step v <- beta v - eta z (error), with Nesterov's look ahead or without. */
  function residuals(z, scalars, {ahead = false} = {}) {
    const left = [1];
    let v = 0;
    for (const [eta, beta] of scalars) {
      const now = left.at(-1);
      v = beta * v - eta * z * (ahead ? now + beta * v : now);
      left.push(now + v);
    }
    return left;
  }

  /* icl.solvers.chebyshev_scalars */
  function chebyshevScalars(low, high, steps) {
    const scalars = [], square = ((high - low) / 2) ** 2;
    for (let k = 0, ratio = 0; k < steps; k++) {
      const next = k ? 1 / (low + high - square * ratio) : 2 / (low + high);
      scalars.push([k ? 2 * next : next, square * next * ratio]);
      ratio = next;
    }
    return scalars;
  }

  /* What `steps` steps leave of the error at eigenvalue z <= 1, by the method; Chebyshev's are for [1 / kappa, 1]. */
  const methods = {
    "gradient descent": ({eta, steps}) => z => residuals(z, Array(steps).fill([eta, 0])).at(-1),
    "momentum": ({eta, beta, steps}) => z => residuals(z, Array(steps).fill([eta, beta])).at(-1),
    "Nesterov": ({eta, beta, steps}) => z => residuals(z, Array(steps).fill([eta, beta]), {ahead: true}).at(-1),
    "Chebyshev": ({kappa, steps}) => {
      const scalars = chebyshevScalars(1 / kappa, 1, steps);
      return z => residuals(z, scalars).at(-1);
    },
  };

  /* icl.theory.polynomial_floor.limit_risks */
  const limitRisks = (c, layers) => {
    let sum = 0;
    return Array.from({length: layers + 1}, (_, k) => 1 / (sum += c ** -k));
  };

  /* icl.theory.polynomial_floor.limit_registers */
  function limitRegisters(c, layers) {
    const sums = [1], power = [1];
    for (let k = 0; k < layers; k++) { power.push(c * power[k]); sums.push(sums[k] + power[k + 1]); }
    return Array.from({length: layers}, (_, k) =>
      ({alpha: sums[k] / sums[k + 1], gamma: k ? c * (sums[k - 1] / sums[k]) ** 2 : 0}));
  }

  /* icl.theory.polynomial_floor.limit_steps */
  const limitSteps = (c, layers) => Array.from({length: layers}, (_, k) =>
    1 / ((1 - Math.sqrt(c)) ** 2 + 4 * Math.sqrt(c) * Math.cos((k + 1) * Math.PI / (2 * (layers + 1))) ** 2));

  /* icl.theory.polynomial_floor.limit_equal_steps */
  function limitEqualSteps(c, layers) {
    const step = 1 / (1 + c), risks = [1];
    for (let k = 0, now = step; k < layers; k++) {
      risks.push(risks[k] - now);
      now *= c * step ** 2 * 2 * (2 * k + 1) / (k + 2);  // Catalan's numbers by their ratio
    }
    return {step, risks};
  }

  /* icl.theory.lfom.limit_table_risks, given the polynomial's values at the nodes t: the integral of p^2 over Marchenko
     and Pastur's law. With p(0) = 1 it is 1 + the integral of (p^2 - 1) / t over a semicircle, for which Gauss's rule of
     N nodes is exact up to degree N of p. */
  function semicircle(c, count) {
    const angle = Array.from({length: count}, (_, k) => (k + 1) * Math.PI / (count + 1));
    const t = angle.map(a => (1 - Math.sqrt(c)) ** 2 + 4 * Math.sqrt(c) * Math.cos(a / 2) ** 2);
    const weight = angle.map(a => 2 / (count + 1) * Math.sin(a) ** 2);
    return {t, risk: p => t.reduce((sum, at, i) => sum + weight[i] * (p[i] ** 2 - 1) / at, 1)};
  }

  /* What a register leaves after each layer, from its numbers: s <- gamma s - t p, p <- p + alpha s. */
  function registerRisks(c, scalars) {
    const {t, risk} = semicircle(c, scalars.length + 1), s = t.map(() => 0), p = t.map(() => 1);
    return [1, ...scalars.map(({alpha, gamma}) => {
      t.forEach((at, i) => { s[i] = gamma * s[i] - at * p[i]; p[i] += alpha * s[i]; });
      return risk(p);
    })];
  }

  /* The least that any k of these steps leave, k = 0, 1, ..: in whatever order they are taken, k steps leave no less. */
  function bestSets(c, steps) {
    const {t, risk} = semicircle(c, steps.length + 1), least = steps.map(() => Infinity);
    const left = [t.map(() => 1)];
    // A set without its highest step comes before it.
    for (let set = 1; set < 2 ** steps.length; set++) {
      const high = 31 - Math.clz32(set), before = left[set - 2 ** high];
      left.push(before.map((p, i) => p * (1 - steps[high] * t[i])));
      let size = 0;
      for (let rest = set; rest; rest &= rest - 1) size++;
      least[size - 1] = Math.min(least[size - 1], risk(left[set]));
    }
    return [1, ...least];
  }

  /* icl.theory.gated_floor.rescaled_risk: the risk of the polynomial p at the ratio r of variances, from the moments
     E tr (W/n)^k of white prompts */
  function rescaledRisk(p, moments, r) {
    let risk = 0;
    p.forEach((a, i) => p.forEach((b, j) => { risk += a * b * r ** (i + j) * moments[i + j]; }));
    return risk;
  }

  /* icl.theory.gated_floor.simplex_gate: the best ratio between those to the experts of the largest and the smallest
     variance; 1 where it is among them, else a grid, then golden section */
  function simplexRatio(p, moments, s, trained) {
    const low = s / Math.max(...trained), high = s / Math.min(...trained), risk = r => rescaledRisk(p, moments, r);
    if (low <= 1 && 1 <= high) return 1;
    const step = (high - low) / 400;
    let best = low;
    for (let i = 1; i <= 400; i++) if (risk(low + i * step) < risk(best)) best = low + i * step;
    const found = goldenSection(risk, Math.max(best - step, low), Math.min(best + step, high));
    return [low, high].reduce((a, b) => risk(b) <= risk(a) ? b : a, found);
  }

  /* icl.theory.mamba.effective_samples and Coefficients: N_eff, beta3 and kappa of N examples at the decay alpha */
  function fading(N, alpha) {
    const half = -Math.log(alpha) / 2, beta3 = -alpha * Math.expm1(N * Math.log(alpha));
    const worth = Math.tanh(N * half) / Math.tanh(half);
    return {worth, beta3, kappa: beta3 ** 2 / worth};
  }

  /* icl.theory.mamba.optimum: beta and the least loss, d (d + 1) / (2 (d + 1 + N_eff)) */
  function mambaOptimum(d, N, alpha) {
    const {worth, beta3, kappa} = fading(N, alpha);
    return {beta: beta3 / (beta3 ** 2 + (d + 1) * kappa), loss: d * (d + 1) / (2 * (d + 1 + worth))};
  }

  /* icl.theory.mamba.shifted_loss: a layer with the gain beta on prompts of N examples */
  function mambaShifted(d, N, alpha, beta) {
    const {beta3, kappa} = fading(N, alpha), own = mambaOptimum(d, N, alpha);
    return own.loss + d * (beta3 ** 2 + (d + 1) * kappa) * (beta - own.beta) ** 2 / 2;
  }

  /* icl.theory.mamba.bound, and sharper_bound for any share alpha^N that is left: N_eff >= 2 N tanh(c/2) / c with
     c = -ln(alpha^N), 2 N / (3 ln 2) for the paper's one half */
  const mambaBound = (d, N) => 3 * d * (d + 1) / (2 * N);
  function mambaSharper(d, N, kept = 0.5) {
    const c = -Math.log(kept);
    return d * (d + 1) / (2 * (d + 1 + 2 * N * Math.tanh(c / 2) / c));
  }

  /* icl.theory.mamba.linear_attention_loss */
  const linearAttentionLoss = (d, N) => d * (d + 1) / (2 * (N + d + 1));

  /* icl.theory.fast_weights, in units of d k0: a coordinate's variance p left by the one equation for D = own p + other;
     fades = 1 - gamma^2 = s / d is q, and the labels' noise is v d */
  function leftBy(fades, own, other) {
    const A = own * fades + 1 - fades, B = other * fades - own * fades, root = Math.sqrt(B * B + 4 * A * other * fades);
    return B > 0 ? 2 * other * fades / (B + root) : (root - B) / (2 * A);
  }

  /* Squared lengths r, chi-square with d degrees of freedom, by the trapezoidal rule in log r */
  function squaredLengths(d) {
    const r = [], weight = [];
    let total = 0;
    for (let u = Math.log(d) - 60 / d - 2; u < Math.log(d) + 3.5; u += 0.4 / Math.sqrt(d)) {
      r.push(Math.exp(u));
      weight.push(Math.exp(d / 2 * (u - Math.log(d)) - (r.at(-1) - d) / 2));
      total += weight.at(-1);
    }
    return {r, weight: weight.map(w => w / total)};
  }

  /* The p for 1/D = mean of share(r, p) */
  function leftByMean(fades, {r, weight}, share) {
    let low = fades, high = 1;
    for (let i = 0; i < 55; i++) {
      const p = (low + high) / 2;
      const heard = p * p * r.reduce((sum, at, j) => sum + weight[j] * share(at, p), 0);
      if (fades + (1 - fades) * (p - heard) > p) low = p; else high = p;
    }
    return (low + high) / 2;
  }

  /* icl.theory.fast_weights.kalman_large_d */
  function kalmanLargeD(s, v) {
    let low = -60, high = Math.log(1 + 3 * (1 + s + s * v)) + 1;
    for (let i = 0; i < 80; i++) {
      const middle = (low + high) / 2, z = Math.exp(middle);
      if (z * z + (2 - s - v * s) * z - (s + 3 * v * s) - 2 * v * s / z > 0) high = middle; else low = middle;
    }
    const z = Math.exp((low + high) / 2);
    return z * z / (s * (1 + z)) * Math.exp(s * (1 + v) / z + s * v / z ** 2 - 1) - v;
  }

  /* Layers' errors over d k0 at their best, and the floor's: gla, free_gates, delta, unit_delta, kalman */
  function fastWeightErrors(d, s, v, lengths = squaredLengths(d)) {
    const fades = s / d, noise = v * d, shift = d + 0.8 * (1 - fades) ** 2 + 2 * v / (v + kalmanLargeD(s, v));
    const gates = (r, p) => r / d / (r * (d - 1 + p) / d + noise), unit = (r, p) => r / d / (r * p + noise);
    return {
      "GLA": leftBy(fades, 1, d + 1 + noise),
      "GLA, best scalar gates": noise ? leftByMean(fades, lengths, gates) : leftBy(fades, 1, d - 1),
      "delta rule": leftBy(fades, d + 2, noise),
      "Longhorn": noise ? leftByMean(fades, lengths, unit) : leftBy(fades, d, 0),
      "Kalman": kalmanLargeD(shift * fades / (1 - fades), noise / shift),
    };
  }

  /* icl.theory.flips.memory_right: the chance that the memory has the query's sign, signs turning with probability flip */
  function memoryRight(lam, {flip, n, rho}) {
    const variance = rho - rho ** 2, step = Math.PI / (n * rho + 9 * Math.sqrt(n * variance)), turns = 1 - 2 * flip;
    const count = Math.floor(9 / Math.sqrt(variance) / step) + 2;
    let total = 0;
    for (let k = 0; k < count; k++) {
      let re = 1, im = 0;  // the characteristic function, from the oldest demonstration to the newest
      for (let age = n - 1; age >= 0; age--) {
        const at = step * (k + 0.5) * lam ** age, size = Math.exp(-variance * at * at / 2);
        const cos = size * Math.cos(rho * at), sin = size * Math.sin(rho * at);
        [re, im] = [re * cos - im * sin, turns * (re * sin + im * cos)];
      }
      total += im / (k + 0.5);
    }
    return 0.5 + total / Math.PI;
  }

  /* icl.theory.flips.sign_ceiling: one demonstration that never turns agrees as often as the known rule is right */
  const signCeiling = rho => memoryRight(1, {flip: 0, n: 1, rho});

  /* icl.theory.flips.sign_accuracy */
  const signAccuracy = (lam, task) => 0.5 + 2 * (signCeiling(task.rho) - 0.5) * (memoryRight(lam, task) - 0.5);

  /* icl.theory.flips.sign_error */
  function signError(lam, {flip, n, rho}) {
    const gamma = 1 - 2 * flip, {D1, D2, D3} = moments({lam, gamma, n, sigma_w: 1, sigma_e: Math.sqrt(1 - gamma ** 2)});
    return 1 - (rho * D1) ** 2 / (D2 + rho * D3);
  }

  /* icl.theory.flips.sign_forgetting: a grid, then golden section */
  function signForgetting(task) {
    const error = lam => signError(lam, task);
    let best = 1;
    for (let i = 1; i <= 400; i++) if (error(i / 400) < error(best)) best = i / 400;
    const found = goldenSection(error, Math.max(best - 1 / 400, 1e-6), Math.min(best + 1 / 400, 1));
    return error(1) <= error(found) * (1 + 1e-13) ? 1 : found;
  }

  /* Errors in the steady state against the memory, in examples, of filters without a matrix and of gated attention. */
  const filters = {
    "LMS": (task, memory) => steadyError(task, 1 / memory),
    "NLMS": (task, memory) => steadyError(task, task.d / memory, {normalised: true}),
    "GLA": (task, memory) => steadyGated(task, 1 - 1 / memory),
    "delta rule": (task, memory) => steadyError(task, 1 / memory, {lam: task.gamma}),
    "normalised delta rule": (task, memory) => steadyError(task, task.d / memory, {lam: task.gamma, normalised: true}),
  };

  const explorables = {
    /* How much to forget: error against lam, in multiples of the Kalman floor, with its optimum and the zero predictor. */
    forgetting({gamma, d, n, sigma_e}) {
      const task = {gamma, d, n, sigma_e, sigma_w: 1}, curve = [];
      const zero = zeroPredictor(task), floor = kalmanFloor(task), lams = Array.from({length: 161}, (_, i) => 0.2 + i / 200);
      for (const lam of lams) curve.push({lam, times: trainingError({...task, lam}) / floor, method: "GLA"});
      for (const lam of [lams[0], 1]) {
        curve.push({lam, times: zero / floor, method: "zero predictor"}, {lam, times: 1, method: "Kalman"});
      }
      const best = optimalForgetting(task), least = trainingError({...task, lam: best});
      const worst = trainingError({...task, lam: 1});
      return {
        datasets: {curve, stars: [{lam: best, times: least / floor, method: "GLA"}]},
        readout: `The best λ is ${best.toFixed(3)}, with error ${fixed(least)}. Not forgetting (λ = 1) gives ` +
          `${fixed(worst)}, ${fixed(100 * (worst / least - 1), 2)}% more. The Kalman floor is ${fixed(floor, 2)}.`,
      };
    },

    /* When the test differs: error against the test's lam of a layer trained elsewhere, and of one trained for it. */
    shift({lam, m, gamma}, {d, n, gamma: trained, sigma_e}) {
      const train = {lam, gamma: trained, n, sigma_e}, test = {d, gamma, n: m, sigma_w: 1, sigma_e}, curve = [];
      const floor = kalmanFloor(test), zero = zeroPredictor(test), lams = Array.from({length: 141}, (_, i) => 0.3 + i / 200);
      let best = {lam: 1, times: Infinity, method: "GLA"};
      for (const at of lams) {
        const row = {lam: at, times: testingError(train, {...test, lam: at}) / floor, method: "GLA"};
        if (row.times < best.times) best = row;
        curve.push(row, {lam: at, times: trainingError({...test, lam: at}) / floor, method: "GLA, trained for the test"});
      }
      for (const at of [lams[0], 1]) {
        curve.push({lam: at, times: zero / floor, method: "zero predictor"}, {lam: at, times: 1, method: "Kalman"});
      }
      const kept = testingError(train, {...test, lam}), own = trainingError({...test, lam: optimalForgetting(test)});
      return {
        datasets: {curve, stars: [best]},
        readout: `Keeping λ = ${lam} at test gives error ${fixed(kept)}, the best test λ, ${best.lam.toFixed(2)}, ` +
          `${fixed(best.times * floor)}; a layer trained for this test ${fixed(own)}, answering 0 ${fixed(zero)}, ` +
          `the Kalman floor ${fixed(floor, 2)}.`,
      };
    },

    /* Adaptive filters: error against memory, in multiples of the Kalman floor, each curve's optimum, the zero predictor.
       What does not settle, or is worse than twice the zero predictor, is left out. */
    filters({gamma, d}) {
      const task = {gamma, d}, curve = [], best = [], floor = steadyFloor(task), zero = d / (1 - gamma ** 2);
      const memories = Array.from({length: 120}, (_, i) => 2 * 150 ** (i / 119)), ends = [memories[0], memories[119]];
      for (const [method, filter] of Object.entries(filters)) {
        const error = log => filter(task, Math.exp(log));
        for (const memory of memories) {
          const now = filter(task, memory);
          if (now <= 2 * zero) curve.push({memory, times: now / floor, method});
        }
        // A grid, then golden section; where the error does not settle it is infinite, and above all that does.
        const [low, high] = ends.map(Math.log), step = (high - low) / 400;
        let at = low;
        for (let i = 1; i <= 400; i++) if (error(low + i * step) < error(at)) at = low + i * step;
        at = goldenSection(error, Math.max(at - step, low), Math.min(at + step, high));
        best.push({memory: Math.exp(at), times: error(at) / floor, method});
      }
      for (const memory of ends) {
        curve.push({memory, times: zero / floor, method: "zero predictor"}, {memory, times: 1, method: "Kalman"});
      }
      const where = memory => memory > 299.9 ? "300 or more" : memory < 2.001 ? "2 or less" : fixed(memory);
      const said = best.map(({memory, times, method}) => `${method} ${times.toFixed(2)} at ${where(memory)}`).join("; ");
      return {
        datasets: {curve, stars: best},
        readout: `Least error, in multiples of the Kalman floor, and the memory for it, in examples: ${said}. ` +
          `Answering 0: ${(zero / floor).toFixed(2)}.`,
      };
    },

    /* First-order methods: what is left of the error against the eigenvalue, and the worst of it from 1 / kappa to 1. */
    firstOrder(values, {eigenvalues, top, points}) {
      const {kappa, steps} = values, curve = [], worst = [], said = [];
      const inside = Array.from({length: points}, (_, i) => kappa ** (i / (points - 1) - 1));
      for (const [method, polynomial] of Object.entries(methods)) {
        const p = polynomial(values), left = z => Math.abs(p(z));
        for (const eigenvalue of eigenvalues) curve.push({eigenvalue, left: left(eigenvalue), method});
        const most = inside.map(z => ({eigenvalue: z, left: left(z), method})).reduce((a, b) => b.left > a.left * (1 + 1e-9) ? b : a);
        if (most.left <= top) worst.push(most);
        const limit = 1 / Math.cosh(steps * Math.acosh((kappa + 1) / (kappa - 1))), own = method === "Chebyshev";
        const share = own ? limit : most.left;
        said.push(`${own ? "the limit, Chebyshev's," : method} ${share < 1e-6 ? "less than 0.000001" : fixed(share)}`);
      }
      for (const left of [0, top]) curve.push({eigenvalue: 1 / kappa, left, method: "1/κ"});
      return {
        datasets: {curve, stars: worst},
        readout: `Of the error at the worst eigenvalue from 1/${kappa} to 1, ${steps} ${steps > 1 ? "steps" : "step"} ` +
          `leave: ${said.join("; ")}.`,
      };
    },

    /* The polynomial floor in high dimension: what is left of the error after each layer of a model of so many layers, on
       the floor with a register and above it without, and what equal steps leave. */
    polynomialFloor({ratio, layers, register}, {deepest}) {
      const c = 1 / ratio, curve = [], add = (method, risks) =>
        risks.forEach((left, layer) => curve.push({layer, left, method}));
      const floor = limitRisks(c, deepest), equal = limitEqualSteps(c, deepest);
      const model = register ? registerRisks(c, limitRegisters(c, layers)) : bestSets(c, limitSteps(c, layers));
      add("equal steps", equal.risks);
      add("the model", model);
      add("polynomial floor", floor);
      const times = (risks, k) => `${fixed(risks[k] / floor[k])} times the floor of ${k}`, early = layers - 1;
      const stopped = register ? `Stopped after ${early}, with the same numbers in them, it is on the floor of ${early}, too.` :
        `Stopped after ${early}, even with its best ${early} first, it leaves ${times(model, early)}.`;
      return {
        datasets: {curve, stars: [{layer: layers, left: model[layers], method: "the model"}]},
        readout: `${register ? "With" : "Without"} a register, the model of ${layers} ${layers > 1 ? "layers" : "layer"} ` +
          `leaves ${fixed(100 * model[layers])}% of the error: the floor. ` + (early ?
          `${stopped} Equal steps, of ${fixed(equal.step)}, leave ${times(equal.risks, layers)}.` :
          `Its one step, of ${fixed(equal.step)}, leaves a register nothing to remember.`),
      };
    },

    /* Gates on experts: the polynomial that the gated heads are, and the one made for the prompts' variance s, over the
       eigenvalues of such prompts, whose density is drawn with a peak of 1. */
    gatedExperts({s, layers, free, reads}, {polynomials, byTrace, traceRisks, moments, trained, density, step, grid}) {
      const p = polynomials[layers - 1], own = byTrace[layers - 1], ownRisk = traceRisks[layers - 1];
      const curve = [], r = free ? 1 : simplexRatio(p, moments, s, trained), floor = rescaledRisk(p, moments, 1);
      const value = (c, t) => c.reduceRight((sum, a) => sum * t + a, 0), peak = Math.max(...density);
      const many = u => {
        const at = u / step, k = Math.floor(at);
        return k + 1 < density.length ? (density[k] + (at - k) * (density[k + 1] - density[k])) / peak : 0;
      };
      for (const t of grid) {
        curve.push({t, value: many(t / s), curve: "density of eigenvalues"});
        curve.push({t, value: value(p, t / s), curve: "made for this variance"});
        curve.push({t, value: reads ? value(own, t / s) : value(p, r * t / s), curve: "the gated heads"});
      }
      const risk = reads ? ownRisk : rescaledRisk(p, moments, r), ln = Math.log(risk).toFixed(2);
      const gate = reads ? "A gate that reads tr H divides by the prompt's own scale" : free ?
        "A free gate makes steps of the right length" : r === 1 ? "A convex gate makes steps of the right length" :
        `A convex gate makes steps of ${fixed(r)} times the right length at best`;
      return {
        datasets: {curve},
        readout: `${gate}: at variance ${s}, with ${layers} ${layers > 1 ? "layers" : "layer"}, the ln of the risk is ${ln}, ${fixed(risk / floor)} times the floor, whose ln ` +
          `is ${Math.log(floor).toFixed(2)}.`,
      };
    },

    /* How many tokens: loss against the prompt's length of a layer whose step is made for N0 examples, of which it keeps
       the share `kept` of what was there before; as trained, with the gain or the step set anew, and the limits. */
    howManyTokens({d, N0, kept}, {lengths}) {
      const alpha = kept ** (1 / N0), {beta, loss: least} = mambaOptimum(d, N0, alpha), curve = [];
      const methods = {
        "S6, as trained": n => mambaShifted(d, n, alpha, beta),
        "S6, gain set anew": n => mambaOptimum(d, n, alpha).loss,
        "S6, step made for N": n => mambaOptimum(d, n, kept ** (1 / n)).loss,
        "linear attention": n => linearAttentionLoss(d, n),
        "the paper's bound": n => mambaBound(d, n),
        "zero predictor": () => d / 2,
      };
      for (const [method, loss] of Object.entries(methods)) {
        for (const examples of lengths) curve.push({examples, loss: loss(examples), method});
      }
      const {worth} = fading(N0, alpha), far = lengths.at(-1);
      return {
        datasets: {curve, stars: [{examples: N0, loss: least, method: "S6, as trained"}]},
        readout: `At N = ${N0} the layer's examples count as ${fixed(worth)}; its loss is ${fixed(least)}, bounded by ` +
          `${fixed(mambaSharper(d, N0, kept))} (sharper) and ${fixed(mambaBound(d, N0))} (the paper's, for a half left); ` +
          `linear attention ${fixed(linearAttentionLoss(d, N0))}; answering 0: ${fixed(d / 2)}. With ${far} examples the ` +
          `layer as trained has ${fixed(mambaShifted(d, far, alpha, beta))}.`,
      };
    },

    /* Every model a fast weight: error over the Kalman floor against s, dimensions over memory, at the labels' noise v. */
    fastWeights({d, v, log_s}, {grid}) {
      const curve = [], best = [], lengths = squaredLengths(d), s = 10 ** log_s, here = fastWeightErrors(d, s, v, lengths);
      for (const at of grid) {
        const errors = fastWeightErrors(d, at, v, lengths);
        for (const [method, error] of Object.entries(errors)) curve.push({s: at, times: error / errors.Kalman, method});
        curve.push({s: at, times: 1 / errors.Kalman, method: "zero predictor"});
      }
      for (const [method, error] of Object.entries(here)) best.push({s, times: error / here.Kalman, method});
      const said = best.slice(0, 4).map(({method, times}) => `${method} ${times.toFixed(2)}`).join("; ");
      return {
        datasets: {curve, stars: best},
        readout: `At s = ${s.toPrecision(3)}, where weights are remembered for about ${fixed(2 * d / s)} examples, errors in ` +
          `multiples of the Kalman floor: ${said}. Answering 0: ${(1 / here.Kalman).toFixed(2)}. The floor itself is ` +
          `${fixed(100 * here.Kalman)}% of the signal.`,
      };
    },

    /* The landing page: one coordinate of a drifting weight, followed by one layer of attention and by Kalman. */
    tracking({gamma, lam}, {d, n, sigma_e, sigma_w, x, e}) {
      const task = {d, gamma, sigma_w, sigma_e}, rows = [];
      const w = new Float64Array(d), g = new Float64Array(d), m = new Float64Array(d), P = startCovariance(task);
      for (let i = 0; i < d; i++) w[i] = sigma_w * e[0][i];
      let D1 = 0, D2 = 0, D3 = 0, k = gamma ** 2 * sigma_w ** 2 + sigma_e ** 2;
      for (let t = 0; t <= n; t++) {
        for (let i = 0; i < d; i++) w[i] = gamma * w[i] + sigma_e * e[t + 1][i];
        const a = (d + 2) * D2 + D3;
        const add = (method, value) => rows.push({time: t, weight: value, method});
        add("true weight", w[0]);
        add("GLA", a > 0 ? D1 / a * g[0] : 0);
        add("Kalman", m[0]);
        const y = w.reduce((sum, wi, i) => sum + wi * x[t][i], 0);
        for (let i = 0; i < d; i++) g[i] = lam * (g[i] + y * x[t][i]);
        kalmanStep(P, x[t], task, m, y);
        D3 = lam ** 2 * (D3 + 2 * D1); D2 = lam ** 2 * (D2 + k); D1 = lam * gamma * (D1 + k);
        k = gamma ** 2 * k + sigma_e ** 2;
      }
      const full = {d, n, gamma, sigma_w, sigma_e}, best = optimalForgetting(full);
      const memory = lam < 1 ? `about ${fixed(1 / (1 - lam), 2)} examples` : "everything";
      return {
        datasets: {curve: rows},
        readout: `With λ = ${lam} the layer remembers ${memory}. Mean squared error of the next label: ` +
          `${fixed(trainingError({...full, lam}))}; at the best λ, ${best.toFixed(3)}, ` +
          `${fixed(trainingError({...full, lam: best}))}; the Kalman filter, ${fixed(kalmanFloor(full), 2)}.`,
      };
    },

    /* When text drifts: accuracy against lam of one layer on labelled rows whose sign turns, chance and the rule known.
       The star is at the lam of least squared error. */
    flips({flip, rho, n}, {lams}) {
      const task = {flip, rho, n}, known = signCeiling(rho), curve = [];
      for (const lam of lams) curve.push({lam, value: 100 * signAccuracy(lam, task), method: "one layer"});
      for (const lam of [lams[0], lams.at(-1)]) {
        curve.push({lam, value: 100 * known, method: "the rule known"}, {lam, value: 50, method: "chance"});
      }
      const lam = signForgetting(task), percent = at => (100 * signAccuracy(at, task)).toFixed(1);
      return {
        datasets: {curve, stars: [{lam, value: 100 * signAccuracy(lam, task), method: "one layer"}]},
        readout: `The best λ is ${lam.toFixed(3)}, with ${percent(lam)}% right. λ = 0.9 has ${percent(0.9)}%, no ` +
          `forgetting (λ = 1) ${percent(1)}%. Who knows the rule has ${(100 * known).toFixed(1)}%.`,
      };
    },

    /* Time-varying regression: coordinates of a drifting weight, from fixed noise, two standard deviations of its law, and
       the labels that a prompt with fixed inputs shows of it; the query's is hidden. */
    drifting({gamma, sigma_e, sigma_w}, {n, e, x}) {
      const k = weightVariances({gamma, n, sigma_w, sigma_e}), curve = [];
      let w = e[0].map(noise => sigma_w * noise);
      for (let i = 0; i <= n + 1; i++) {
        if (i) w = w.map((old, j) => gamma * old + sigma_e * e[i][j]);
        w.forEach((weight, j) => curve.push({time: i, weight, method: "w" + "₁₂₃"[j]}));
        const edge = 2 * Math.sqrt(k[i]);
        curve.push({time: i, weight: edge, method: "+2 s.d."}, {time: i, weight: -edge, method: "−2 s.d."});
        if (i && i <= n) curve.push({time: i, weight: w.reduce((sum, wj, j) => sum + wj * x[i][j], 0), method: "label y"});
      }
      const spread = fixed(Math.sqrt(k[n + 1])), forgotten = startForgotten({gamma, sigma_w, sigma_e});
      const kind =
        gamma === 0 ? "White noise: every weight is new." :
        gamma < 1 ? `The weights settle at a standard deviation of ${fixed(sigma_e / Math.sqrt(1 - gamma ** 2))}; ` +
          `the half-life of their correlation, in examples, is ${fixed(halfLife(gamma))}.` :
        gamma === 1 ? "A random walk: nothing is lost and something is always added." :
        "What there is grows by itself, and something is always added.";
      const start = forgotten < Infinity ? `The start is below 1% of the variance from example ${fixed(forgotten, 9)} on.` :
        "The start never falls below 1% of the variance.";
      return {
        datasets: {curve},
        readout: `${kind} At the query the standard deviation is ${spread}. ${start}`,
      };
    },
  };

  return {
    moments, trainingError, testingError, zeroPredictor, optimalForgetting, kalmanFloor,
    steadyError, steadyGated, steadyFloor, filters, weightVariances, startForgotten, halfLife,
    chebyshevScalars, methods, limitRisks, limitRegisters, limitSteps, limitEqualSteps, registerRisks, bestSets,
    rescaledRisk, simplexRatio,
    fading, mambaOptimum, mambaShifted, mambaBound, mambaSharper, linearAttentionLoss,
    squaredLengths, kalmanLargeD, fastWeightErrors,
    memoryRight, signCeiling, signAccuracy, signError, signForgetting, explorables,
  };
})();
