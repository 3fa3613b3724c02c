/* The closed forms that explorables recompute in the reader's browser. Each mirrors a function of the library, named
   beside it; tests/browser compares the two. Inputs have covariance I here. */
"use strict";
window.icl = (() => {
  /* icl.theory.moments.recursion; `each` is told of the moments of 1, 2, .. n examples */
  function moments({lam, gamma, n, sigma_w = 1, sigma_e = 0.1}, each = null) {
    let D1 = 0, D2 = 0, D3 = 0, k = gamma ** 2 * sigma_w ** 2 + sigma_e ** 2;
    for (let i = 0; i < n; i++) {
      D3 = lam ** 2 * (D3 + 2 * D1);
      D2 = lam ** 2 * (D2 + k);
      D1 = lam * gamma * (D1 + k);
      k = gamma ** 2 * k + sigma_e ** 2;
      if (each) each({D1, D2, D3, D4: k});
    }
    return {D1, D2, D3, D4: k};
  }

  /* icl.theory.one_layer.training_error, Lambda = I: d (D4 - D1^2 / a), a = (d + 2) D2 + D3 */
  function trainingError({d, ...task}) {
    const {D1, D2, D3, D4} = moments(task), a = (d + 2) * D2 + D3;
    return d * (D4 - (a > 0 ? D1 ** 2 / a : 0));
  }

  /* icl.theory.one_layer.testing_error, Lambda = I on both sides: A = D1 / a of the training task, all else of the test's */
  function testingError(train, {d, ...test}) {
    const {D1, D2, D3} = moments(train), gain = D1 / ((d + 2) * D2 + D3), now = moments(test);
    return d * (now.D4 - 2 * gain * now.D1 + gain ** 2 * ((d + 2) * now.D2 + now.D3));
  }

  /* icl.theory.one_layer.zero_predictor */
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

  /* icl.theory.one_layer.optimal_forgetting: a grid, then golden section */
  function optimalForgetting(task) {
    const error = lam => trainingError({...task, lam});
    let best = 1;
    for (let i = 1; i <= 400; i++) if (error(i / 400) <= error(best)) best = i / 400;
    const found = goldenSection(error, Math.max(best - 1 / 400, 0), Math.min(best + 1 / 400, 1));
    return error(1) <= error(found) ? 1 : found;
  }

  /* icl.theory.lms_family.steady_error, Lambda = I and Gaussian inputs: every direction is alike, one number carries each. */
  function steadyError({gamma, d, sigma_e = 1}, mu, {lam = 1, normalised = false} = {}) {
    const k = sigma_e ** 2 / (1 - gamma ** 2), s = normalised ? 1 / d : 1, square = normalised ? 1 / d : d + 2;
    if (mu === 0 && lam === 1) return d * k;
    const kept = gamma * lam * (1 - mu * s), c = gamma * lam * mu * s * k / (1 - kept);
    const left = 1 - lam ** 2 * (1 - 2 * mu * s + mu ** 2 * square);
    const a = lam ** 2 * (2 * mu * s * c + mu ** 2 * square * (k - 2 * c)) / left;
    return left > 0 && Math.abs(kept) < 1 ? d * (k - 2 * c + a) : Infinity;
  }

  /* What icl.theory.one_layer.training_error tends to as the prompt grows: D1, D2, D3 are sums of geometric series. */
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

  /* One step of icl.theory.floors's Riccati recursion, in place; with a residual it also moves the estimate m. */
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

  /* icl.theory.floors.kalman_risk at the query, over `sequences` fixed random input sequences */
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

  /* icl.theory.floors.kalman_risk in the steady state: over the last 400 of 500 positions of fixed random input sequences, for
     weights that have been drifting forever */
  function steadyFloor({d, gamma, sigma_e = 1}, sequences = 20) {
    const n = 500, last = 400, sigma_w = sigma_e / Math.sqrt(1 - gamma ** 2), x = normals(sequences * n * d, 1);
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

  /* icl.theory.s6.effective_samples and Coefficients: N_eff, beta3 and kappa of N examples at the decay alpha */
  function fading(N, alpha) {
    const half = -Math.log(alpha) / 2, beta3 = -alpha * Math.expm1(N * Math.log(alpha));
    const worth = Math.tanh(N * half) / Math.tanh(half);
    return {worth, beta3, kappa: beta3 ** 2 / worth};
  }

  /* icl.theory.s6.optimum: beta and the least loss, d (d + 1) / (2 (d + 1 + N_eff)) */
  function mambaOptimum(d, N, alpha) {
    const {worth, beta3, kappa} = fading(N, alpha);
    return {beta: beta3 / (beta3 ** 2 + (d + 1) * kappa), loss: d * (d + 1) / (2 * (d + 1 + worth))};
  }

  /* icl.theory.s6.shifted_loss: a layer with the gain beta on prompts of N examples */
  function mambaShifted(d, N, alpha, beta) {
    const {beta3, kappa} = fading(N, alpha), own = mambaOptimum(d, N, alpha);
    return own.loss + d * (beta3 ** 2 + (d + 1) * kappa) * (beta - own.beta) ** 2 / 2;
  }

  /* icl.theory.s6.bound, and sharper_bound for any share alpha^N that is left: N_eff >= 2 N tanh(c/2) / c with
     c = -ln(alpha^N), 2 N / (3 ln 2) for the paper's one half */
  const mambaBound = (d, N) => 3 * d * (d + 1) / (2 * N);
  function mambaSharper(d, N, kept = 0.5) {
    const c = -Math.log(kept);
    return d * (d + 1) / (2 * (d + 1 + 2 * N * Math.tanh(c / 2) / c));
  }

  /* icl.theory.s6.linear_attention_loss */
  const linearAttentionLoss = (d, N) => d * (d + 1) / (2 * (N + d + 1));

  /* icl.theory.steady and large_d, in units of d k0: a coordinate's variance p left by the one equation for D = own p + other;
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

  /* icl.theory.large_d.kalman_large_d */
  function kalmanLargeD(s, v) {
    let low = -60, high = Math.log(1 + 3 * (1 + s + s * v)) + 1;
    for (let i = 0; i < 80; i++) {
      const middle = (low + high) / 2, z = Math.exp(middle);
      if (z * z + (2 - s - v * s) * z - (s + 3 * v * s) - 2 * v * s / z > 0) high = middle; else low = middle;
    }
    const z = Math.exp((low + high) / 2);
    return z * z / (s * (1 + z)) * Math.exp(s * (1 + v) / z + s * v / z ** 2 - 1) - v;
  }

  /* The root of a function between two ends where it has different signs */
  function signChange(f, low, high) {
    const rising = f(high) > 0;
    for (let i = 0; i < 45; i++) {
      const middle = (low + high) / 2;
      if ((f(middle) > 0) === rising) high = middle; else low = middle;
    }
    return (low + high) / 2;
  }

  /* icl.theory.large_d.eps_delta */
  function epsDelta(s, v) {
    const half = s * (1 - v), root = Math.sqrt(half ** 2 + 4 * (1 + s) * s * v);
    return half < 0 ? 2 * s * v / (root - half) : (half + root) / (2 * (1 + s));
  }

  /* icl.theory.cheap_covariance.eps_blocks */
  function epsBlocks(share, s, v) {
    if (share < 1e-6) return epsDelta(s, v);
    const low = kalmanLargeD(s, v), over = eps => kalmanLargeD(share * s, (v + (1 - share) * eps) / share) - eps;
    return share === 1 ? low : signChange(over, low * (1 - 1e-6), epsDelta(s, v) * (1 + 1e-6));
  }

  /* icl.theory.cheap_covariance.eps_low_rank: roots touch on both sides of the kept eigenvalues */
  function epsLowRank(share, s, v) {
    if (share < 1e-6) return epsDelta(s, v);
    if (share > 1 - 1e-6) return kalmanLargeD(s, v);
    const lost = (1 - share) * s, least = (H, low, high) => {
      const step = (high - low) / 40;
      let best = 0, value = H(low);
      for (let i = 1; i <= 40; i++) {
        const here = H(low + i * step);
        if (here < value) [best, value] = [i, here];
      }
      return H(goldenSection(H, low + Math.max(best - 1, 0) * step, low + Math.min(best + 1, 40) * step));
    };
    const at = p => {
      const c = p - lost * (1 - p), H = z => {
        const A = (v - z) * (p - z) - z * z * (1 - share), B = z * z * (p - z);
        return s * (1 - z) * A / B - 1 - s * share + Math.log(B / (s * (1 - z) * (c - z)));
      };
      return [least(t => H(-Math.exp(t)), Math.log(1e-9), Math.log(1e3 * (1 + s))),
        least(t => H(p + (1 - p) / (1 + Math.exp(-t))), -16, 16)];
    };
    const apart = p => { const [left, right] = at(p); return left - right; };
    return Math.exp(at(signChange(apart, lost / (1 + lost) * (1 + 1e-9), 1 - 1e-9))[0]) - v;
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

  /* icl.theory.unknown_drift.gates_at, then unit_delta_error over d: what a layer of a world with these s and v leaves in a
     weight of variance 1, its gates those of the layer that would leave p if the noise were `told` */
  function leftByGatesAt(p, {d, s, v, told}, {r, weight} = squaredLengths(d)) {
    const mean = f => r.reduce((sum, at, i) => sum + weight[i] * f(at), 0) / d;
    const lam2 = (1 - p) / (1 - p + p * p * mean(at => at / (at * p + told * d))), eps = told * d / p;
    const b1 = mean(at => at / (at + eps)), b2 = mean(at => (at / (at + eps)) ** 2), b3 = mean(at => at / (at + eps) ** 2);
    const both = Math.sqrt(lam2 * (1 - s / d)), C = both * b1 / (1 - both * (1 - b1));
    return 1 - 2 * C + lam2 * (2 * b1 * C + b2 * (1 - 2 * C) + b3 * v * d) / (1 - lam2 * (1 - 2 * b1 + b2));
  }

  /* icl.theory.large_d.eps_gla and eps_delta */
  const glaLargeD = (s, v) => 2 / (1 + Math.sqrt(1 + 4 / (s * (1 + v))));
  function deltaLargeD(s, v) {
    const half = s * (1 - v), root = Math.sqrt(half * half + 4 * (1 + s) * s * v);
    return half < 0 ? 2 * s * v / (root - half) : (half + root) / (2 * (1 + s));
  }

  /* What a table has at x between its places, along a straight line; beyond them its ends */
  function between(x, places, values) {
    const right = places.findIndex(at => at >= x);
    if (right <= 0) return right ? values.at(-1) : values[0];
    const share = (x - places[right - 1]) / (places[right] - places[right - 1]);
    return values[right - 1] + share * (values[right] - values[right - 1]);
  }

  /* icl.theory.mesa.least_noise at one s: excess are the logarithms of a row of its table less 1 */
  function leastNoise(s, within, logV, excess) {
    const times = error => noise => Math.log(error(s, Math.exp(noise)) / kalmanLargeD(s, Math.exp(noise)) - 1);
    const layers = {
      "GLA": times(glaLargeD), "gates of the key": times(deltaLargeD), "Mesa": noise => between(noise, logV, excess),
    };
    return Object.fromEntries(Object.entries(layers).map(([layer, at]) => {
      let low = logV[0], high = logV.at(-1);
      for (let i = 0; i < 40; i++) {
        const middle = (low + high) / 2;
        if (at(middle) > Math.log(within)) low = middle; else high = middle;
      }
      return [layer, Math.exp((low + high) / 2)];
    }));
  }

  /* icl.theory.spectra as d grows, for a drift whose power is constant in bands: `widths` in independent numbers a label,
     `weights` their shares of the signal; v is the labels' noise. Errors over the signal. */
  function bandErrors(widths, weights, v) {
    const total = weights.reduce((sum, w) => sum + w, 0), heights = weights.map((w, i) => w / total / widths[i]);
    const L = R => heights.reduce((sum, h, i) => sum + widths[i] * Math.log1p(h / R), 0);
    const left = R => heights.reduce((sum, h, i) => sum + widths[i] * h / (1 + h / R), 0);
    const root = gap => {
      let low = -28, high = 0;
      for (let i = 0; i < 60; i++) {
        const middle = (low + high) / 2;
        if (gap(Math.exp(middle)) > 0) low = middle; else high = middle;
      }
      return Math.exp((low + high) / 2);
    };
    const smoother = root(e => left(v + e) - e), R = v + smoother;
    return {
      heights,
      errors: {
        "GLA": (1 + v) * L(1 + v),
        "gates of the key": root(e => (v + e) * L(v + e) - e),
        "Kalman": smoother + R * Math.expm1(L(R) - smoother / R),
        "smoother": smoother,
      },
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

  /* icl.models.stacks.Stack with `steps` times the steps it starts with, on the examples (x, y): what it answers to a query
     is linear in the query, and these are the weights of that. The newest `long` examples are stretched, labels too. */
  function stackWeights({x, y}, {layers, steps = 1, long = 0, by = 1, normalised = false}) {
    const n = x.length, d = x[0].length, q = Float64Array.from({length: d * d}, (_, i) => i % (d + 1) ? 0 : 1);
    const answer = new Float64Array(d), state = new Float64Array(d * (d + 1)), read = new Float64Array(d + 1);
    const z = x.map((xi, i) => {
      const scale = normalised ? Math.sqrt(d / xi.reduce((sum, v) => sum + v * v, 0)) : i >= n - long ? by : 1;
      return Float64Array.from([...xi, y[i]], v => v * scale);
    });
    for (let layer = 0; layer < layers; layer++) {
      const lam = layers > 1 ? 0.7 + 0.2 * layer / (layers - 1) : 0.8;
      const s_x = layer < layers - 1 ? steps * (1 - lam) * 0.5 / layers : 0, s_y = steps * (1 - lam) / layers;
      state.fill(0);
      for (const token of z) {
        // What earlier tokens have written, read with this token; what it writes itself is what it was before.
        for (let a = 0; a <= d; a++) {
          read[a] = 0;
          for (let b = 0; b < d; b++) read[a] += state[a * d + b] * token[b];
        }
        for (let a = 0; a <= d; a++) {
          for (let b = 0; b < d; b++) state[a * d + b] = lam * (state[a * d + b] + token[a] * token[b]);
        }
        for (let a = 0; a <= d; a++) token[a] -= (a < d ? s_x : s_y) * read[a];
      }
      for (let k = 0; k < d; k++) {
        for (let a = 0; a <= d; a++) {
          read[a] = 0;
          for (let b = 0; b < d; b++) read[a] += state[a * d + b] * q[k * d + b];
        }
        for (let a = 0; a < d; a++) q[k * d + a] -= s_x * read[a];
        answer[k] += s_y * read[d];
      }
    }
    return answer;
  }

  /* What such a stack is wrong by, over all queries, where answering 0 is wrong by 1. */
  function stackError(prompt, stack) {
    const answer = stackWeights(prompt, stack);
    return Math.hypot(...answer.map((v, k) => v - prompt.w[k])) / Math.hypot(...prompt.w);
  }

  /* icl.theory.s6.Coefficients, as slopes of the population loss need them, with or without biases */
  function bowl(d, N, alpha = 2 ** (-1 / N), biases = true) {
    const {beta3, kappa} = fading(N, alpha), beta1 = beta3 ** 2 + (d + 1) * kappa;
    const m = [...Array(d).fill(beta1), (d * d + 2 * d) * (beta3 ** 2 + 2 * kappa), ...(biases ? [d * kappa] : [])];
    return {d, m, beta1, beta: beta3 / beta1, floor: mambaOptimum(d, N, alpha).loss};
  }

  /* icl.theory.s6.descend on X = (B b b_B) and Y = (C b_C), by all that the loss sees of them: X'X, Y'Y and K = Y'X, as
     rows of rows. A column trains where its number in trains is 1, not where it is 0; `look` gets K and the step, and ends
     the descent by saying true. */
  function descendGrams({XX, YY, K}, {d, m, beta}, eta, steps, look, trains = {}) {
    const p = K.length, q = K[0].length, {X: trainX = Array(q).fill(1), Y: trainY = Array(p).fill(1)} = trains;
    const flat = rows => Float64Array.from(rows.flat()), zeros = size => new Float64Array(size);
    const xx = flat(XX), yy = flat(YY), k = flat(K), GX = zeros(p * q), GY = zeros(p * q);
    const YG = zeros(p * q), GS = zeros(p * q), KG = zeros(q * q), GK = zeros(p * p);
    for (let step = 0; step <= steps; step++) {
      if (look(k, step) || step === steps) break;
      for (let i = 0; i < p; i++) for (let j = 0; j < q; j++) {
        const slope = eta * m[j] * (k[i * q + j] - (i === j && i < d ? beta : 0));
        GX[i * q + j] = slope * trainX[j];
        GY[i * q + j] = slope * trainY[i];
      }
      for (let i = 0; i < p; i++) for (let j = 0; j < q; j++) {
        let a = 0, b = 0;
        for (let l = 0; l < p; l++) a += yy[i * p + l] * GX[l * q + j];
        for (let l = 0; l < q; l++) b += GY[i * q + l] * xx[l * q + j];
        YG[i * q + j] = a;
        GS[i * q + j] = b;
      }
      for (let i = 0; i < q; i++) for (let j = 0; j < q; j++) {
        let a = 0;
        for (let l = 0; l < p; l++) a += k[l * q + i] * GX[l * q + j];
        KG[i * q + j] = a;
      }
      for (let i = 0; i < p; i++) for (let j = 0; j < p; j++) {
        let a = 0;
        for (let l = 0; l < q; l++) a += GY[i * q + l] * k[j * q + l];
        GK[i * p + j] = a;
      }
      for (let i = 0; i < q; i++) for (let j = i; j < q; j++) {
        let a = -KG[i * q + j] - KG[j * q + i];
        for (let l = 0; l < p; l++) a += GX[l * q + i] * YG[l * q + j];
        xx[j * q + i] = xx[i * q + j] += a;
      }
      for (let i = 0; i < p; i++) for (let j = i; j < p; j++) {
        let a = -GK[i * p + j] - GK[j * p + i];
        for (let l = 0; l < q; l++) a += GS[i * q + l] * GY[j * q + l];
        yy[j * p + i] = yy[i * p + j] += a;
      }
      for (let i = 0; i < p; i++) for (let j = 0; j < q; j++) {
        let a = -YG[i * q + j] - GS[i * q + j];
        for (let l = 0; l < p; l++) a += GK[i * p + l] * GX[l * q + j];
        k[i * q + j] += a;
      }
    }
    return {XX: xx, YY: yy, K: k};
  }

  /* icl.theory.s6.population_loss of K */
  function bowlLoss(k, {d, m, beta, floor}) {
    let loss = floor;
    for (let i = 0, q = m.length; i < k.length; i++) {
      loss += m[i % q] * (k[i] - (i % q < d && i % (q + 1) === 0 ? beta : 0)) ** 2 / 2;
    }
    return loss;
  }

  /* The distance ||P - beta I|| of icl.theory.s6.DescentPath */
  function bowlDistance(k, {d, m, beta}) {
    let square = 0;
    for (let i = 0; i < d; i++) for (let j = 0; j < d; j++) square += (k[i * m.length + j] - (i === j ? beta : 0)) ** 2;
    return Math.sqrt(square);
  }

  /* The least eigenvalue of the first d rows and columns of a symmetric matrix, by Jacobi's rotations. */
  function leastOfBlock(matrix, width, d) {
    const A = Array.from({length: d}, (_, i) => Array.from({length: d}, (_, j) => matrix[i * width + j]));
    for (let sweep = 0; sweep < 12; sweep++) for (let i = 0; i < d; i++) for (let j = i + 1; j < d; j++) {
      if (Math.abs(A[i][j]) < 1e-300) continue;
      const half = (A[j][j] - A[i][i]) / (2 * A[i][j]);
      const t = (half < 0 ? -1 : 1) / (Math.abs(half) + Math.hypot(half, 1)), c = 1 / Math.hypot(t, 1), s = t * c;
      for (let l = 0; l < d; l++) [A[l][i], A[l][j]] = [c * A[l][i] - s * A[l][j], s * A[l][i] + c * A[l][j]];
      for (let l = 0; l < d; l++) [A[i][l], A[j][l]] = [c * A[i][l] - s * A[j][l], s * A[i][l] + c * A[j][l]];
    }
    return Math.min(...A.map((row, i) => row[i]));
  }

  /* icl.theory.lfom.table_risks of steps a without memory: the risk after each, from the moments of white prompts */
  function stepRisks(a, moments) {
    let p = [1];
    return [rescaledRisk(p, moments, 1), ...a.map(step => {
      p = [...p, 0].map((c, k) => c - (k ? step * p[k - 1] : 0));
      return rescaledRisk(p, moments, 1);
    })];
  }

  /* GD++ with numbers a and b, on a diagonal H of eigenvalues t (icl.models.memformer.error_matrices): its error
     polynomial, and what each layer sees, in units of what it sees of eigenvalue 1. Steps are a times the latter. */
  function movedInputs(t, steps, bends) {
    let p = t.map(() => 1), tau = p, one = 1;
    const seen = steps.map((step, k) => {
      const a = step / one ** 2, h = t.map((at, i) => tau[i] ** 2 * at), unit = one ** 2;
      p = p.map((left, i) => left * (1 - a * h[i]));
      tau = tau.map((moved, i) => moved * (1 - bends[k] * a * h[i]));
      one *= 1 - bends[k] * step;
      return h.map(value => value / unit);
    });
    return {p, seen};
  }

  /* icl.theory.one_layer.position_weights, newest first, and position_error: for Lambda = I the weights of a scalar Kalman
     filter that is told w_i and noise of d + 1 times its variance. */
  function positionWeights({d, gamma, n, sigma_w = 1, sigma_e = 0.1}) {
    const gains = [], weights = [];
    let k = gamma ** 2 * sigma_w ** 2 + sigma_e ** 2, p = k;
    for (let i = 0; i < n; i++) {
      gains.push(p / (p + (d + 1) * k));
      p = gamma ** 2 * p * (1 - gains[i]) + sigma_e ** 2;
      k = gamma ** 2 * k + sigma_e ** 2;
    }
    for (let i = n - 1, kept = gamma; i >= 0; i--) {
      weights.push(kept * gains[i]);
      kept *= gamma * (1 - gains[i]);
    }
    return {weights, error: d * p};
  }

  /* icl.theory.one_layer.training_error over zero_predictor, for prompts of 1 to n examples, a layer for each */
  function sharesMissed({d, ...task}) {
    const missed = [];
    moments(task, ({D1, D2, D3, D4}) => missed.push(1 - D1 ** 2 / (D4 * ((d + 2) * D2 + D3))));
    return missed;
  }

  /* icl.theory.floors's risk over that of answering 0, before any example and after each, over fixed random inputs */
  function floorAlong({d, n, gamma, sigma_w = 1, sigma_e = 0.1}, sequences = 40) {
    const x = normals(sequences * n * d, 1), left = new Float64Array(n + 1), k = weightVariances({gamma, n, sigma_w, sigma_e});
    for (let b = 0; b < sequences; b++) {
      const P = startCovariance({d, gamma, sigma_w, sigma_e});
      for (let t = 0; t <= n; t++) {
        for (let i = 0; i < d; i++) left[t] += P[i * d + i] / (sequences * d * k[t + 1]);
        if (t < n) kalmanStep(P, x.subarray((b * n + t) * d, (b * n + t + 1) * d), {d, gamma, sigma_e});
      }
    }
    return left;
  }

  /* icl.theory.population.layer_loss where p and q lie along one direction e and U = alpha e e' + beta (I - e e'): five
     numbers, which gradient flow for Lambda = I keeps. `error` is 2 L, `velocity` the flow's, `trap` and `best` are 2 L at
     rank_one_trap and global_minimum, `curvature` is trap_curvature. */
  function populationLoss({d, n, gamma, lam, sigma_w = 1, sigma_e = 0.1}) {
    const {D1, D2, D3, D4} = moments({lam, gamma, n, sigma_w, sigma_e}), a = (d + 2) * D2 + D3, m = d - 1;
    let S1 = 0, S2 = 0, E1 = 0, F1 = 0, F2 = 0, F3 = 0, k = gamma ** 2 * sigma_w ** 2 + sigma_e ** 2;
    for (let i = 0; i < n; i++) {
      S1 = lam * (S1 + 1);
      S2 = lam ** 2 * (S2 + 1);
      E1 = lam * (E1 + k);
      F3 = lam ** 2 * (F3 + 2 * F1);  // as D1 .. D3, of the squares of the weights' kernel
      F2 = lam ** 2 * (F2 + k ** 2);
      F1 = lam * gamma ** 2 * (F1 + k ** 2);
      k = gamma ** 2 * k + sigma_e ** 2;
    }
    const E2 = (E1 * d) ** 2 + 2 * d * (F2 + F3) + 2 * F2 * (d ** 2 + 2 * d);
    const own = S1 ** 2 + S2 + 4 * S1 + 8, all = S2 + 2, both = 2 * S1 + 4;
    const along = E1 * d * (S1 + 3) + 2 * D2, across = E1 * d * m;  // the labels' squares meet alpha and beta
    const pairs = (alpha, beta, tau) => own * alpha ** 2 + all * (alpha ** 2 + m * beta ** 2) + both * tau * alpha + tau ** 2;
    const error = ([v, alpha, beta, p, q]) => {
      const A1 = v * alpha + p * q, A2 = v * beta, tau = alpha + m * beta;
      return a * (A1 ** 2 + m * A2 ** 2) - 2 * D1 * (A1 + m * A2) + d * D4 + p ** 2 * pairs(alpha, beta, tau) +
        E2 * (v * q) ** 2 + 2 * v * p * q * (along * alpha + across * beta);
    };
    const velocity = ([v, alpha, beta, p, q]) => {
      const slope1 = a * (v * alpha + p * q) - D1, slope2 = m * (a * v * beta - D1), tau = alpha + m * beta;
      const mixed = along * alpha + across * beta;
      return [
        -(slope1 * alpha + slope2 * beta + E2 * v * q ** 2 + p * q * mixed),
        -(slope1 * v + p ** 2 * ((own + all) * alpha + both * (tau + alpha) / 2 + tau) + v * p * q * along),
        -(slope2 * v + p ** 2 * (all * m * beta + both * m * alpha / 2 + m * tau) + v * p * q * across) / m,
        -(slope1 * q + p * pairs(alpha, beta, tau) + v * q * mixed),
        -(slope1 * p + E2 * v ** 2 * q + v * p * mixed),
      ];
    };
    const size = D1 / a, rest = Math.sqrt(m);
    const curvature = leastEigenvalue([
      [size * E2, size * along, rest * (size * E1 * d - D1)],
      [size * along, size * (own + all + both + 1), rest * size * (S1 + 3)],
      [rest * (size * E1 * d - D1), rest * size * (S1 + 3), size * (all + m)],
    ]);
    return {error, velocity, trap: d * D4 - D1 * size, best: d * (D4 - D1 * size), zero: d * D4, curvature};
  }

  /* The least eigenvalue of a symmetric 3 x 3 matrix, by Cardano's formula with cosines. */
  function leastEigenvalue(M) {
    const mean = (M[0][0] + M[1][1] + M[2][2]) / 3, [x, y, z] = [0, 1, 2].map(i => M[i][i] - mean);
    const [f, g, h] = [M[0][1], M[0][2], M[1][2]], spread = Math.sqrt((x * x + y * y + z * z + 2 * (f * f + g * g + h * h)) / 6);
    if (!spread) return mean;
    const half = (x * (y * z - h * h) - f * (f * z - g * h) + g * (f * h - g * y)) / (2 * spread ** 3);
    return mean + 2 * spread * Math.cos((Math.acos(Math.max(-1, Math.min(1, half))) + 2 * Math.PI) / 3);
  }

  /* Follows a velocity from a start to each of the times, by Dormand and Prince's pair of orders 5 and 4 with the step that
     an error of `tolerance` allows; where the velocity is nearly 0 it stays. */
  function follow(velocity, start, times, tolerance = 1e-9) {
    const stages = [[], [1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9],
      [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729], [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
      [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]];
    const gap = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40], found = [];
    let at = 0, now = start, slope = velocity(now), step = 1e-3;
    for (const time of times) {
      while (at < time && Math.hypot(...slope) > 1e-7) {
        const h = Math.min(step, time - at), k = [slope];
        let next;
        for (let s = 1; s < 7; s++) {
          next = now.map((value, i) => value + h * stages[s].reduce((sum, c, j) => sum + c * k[j][i], 0));
          k.push(velocity(next));
        }
        const off = h * Math.hypot(...now.map((_, i) => gap.reduce((sum, c, j) => sum + c * k[j][i], 0)));
        if (off <= tolerance) {
          at = h < step ? time : at + h;
          [now, slope] = [next, k[6]];
        }
        step = (off <= tolerance && h < step ? step : h) * Math.max(0.2, Math.min(4, 0.9 * (tolerance / off) ** 0.2));
      }
      found.push(now);
    }
    return found;
  }

  /* The least risk of icl.theory.s6 with labels that have noise sigma, of examples worth so many; and that of LMS, which is
     icl.theory.s6.lms_loss without noise, after N of them */
  const noisyAverage = (d, worth, sigma) => d * (d + 1 + sigma ** 2) / (2 * (d + 1 + sigma ** 2 + worth));
  function noisyLms(d, N, mu, sigma) {
    const keep = 1 - 2 * mu + (d + 2) * mu ** 2;
    return d * (keep ** N + mu ** 2 * sigma ** 2 * (1 - keep ** N) / (1 - keep)) / 2;
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
      for (const x of lams) {
        curve.push({x, y: trainingError({...task, lam: x}) / floor, by: "GLA"});
        curve.push({x, y: zero / floor, by: "zero predictor"}, {x, y: 1, by: "Kalman"});
      }
      const best = optimalForgetting(task), least = trainingError({...task, lam: best});
      const worst = trainingError({...task, lam: 1});
      return {
        datasets: {curve, stars: [{x: best, y: least / floor, by: "GLA"}]},
        readout: `The best λ is ${best.toFixed(3)}, with error ${fixed(least)}. Without forgetting (λ = 1) it is ` +
          `${fixed(worst)}, ${fixed(100 * (worst / least - 1), 2)}% larger. The Kalman floor is ${fixed(floor, 2)}.`,
      };
    },

    /* When the test differs: error against the test's lam of a layer trained elsewhere, and of one trained for it. */
    shift({lam, m, gamma}, {d, n, gamma: trained, sigma_e}) {
      const train = {lam, gamma: trained, n, sigma_e}, test = {d, gamma, n: m, sigma_w: 1, sigma_e}, curve = [];
      const floor = kalmanFloor(test), zero = zeroPredictor(test), lams = Array.from({length: 141}, (_, i) => 0.3 + i / 200);
      let best = {x: 1, y: Infinity, by: "GLA"};
      for (const x of lams) {
        const row = {x, y: testingError(train, {...test, lam: x}) / floor, by: "GLA"};
        if (row.y < best.y) best = row;
        curve.push(row, {x, y: trainingError({...test, lam: x}) / floor, by: "GLA, trained for the test"});
      }
      for (const x of [lams[0], 1]) {
        curve.push({x, y: zero / floor, by: "zero predictor"}, {x, y: 1, by: "Kalman"});
      }
      const kept = testingError(train, {...test, lam}), own = trainingError({...test, lam: optimalForgetting(test)});
      return {
        datasets: {curve, stars: [best]},
        readout: `Keeping λ = ${lam} at test gives error ${fixed(kept)}, the best test λ, ${best.x.toFixed(2)}, ` +
          `${fixed(best.y * floor)}; a layer trained for this test ${fixed(own)}, answering 0 ${fixed(zero)}, ` +
          `the Kalman floor ${fixed(floor, 2)}.`,
      };
    },

    /* Adaptive filters: error against memory, in multiples of the Kalman floor, each curve's optimum, the zero predictor.
       Points that do not settle, or are worse than twice the zero predictor, are left out. */
    filters({gamma, d}, {methods}) {
      const task = {gamma, d}, curve = [], stars = [], floor = steadyFloor(task), zero = d / (1 - gamma ** 2);
      const memories = Array.from({length: 120}, (_, i) => 2 * 150 ** (i / 119)), ends = [memories[0], memories[119]];
      for (const by of methods) {
        const filter = filters[by], error = log => filter(task, Math.exp(log));
        for (const x of memories) {
          const now = filter(task, x);
          if (now <= 2 * zero) curve.push({x, y: now / floor, by});
        }
        // A grid, then golden section; where the error does not settle it is infinite, and above all that does.
        const [low, high] = ends.map(Math.log), step = (high - low) / 400;
        let at = low;
        for (let i = 1; i <= 400; i++) if (error(low + i * step) < error(at)) at = low + i * step;
        at = goldenSection(error, Math.max(at - step, low), Math.min(at + step, high));
        stars.push({x: Math.exp(at), y: error(at) / floor, by});
      }
      for (const x of ends) curve.push({x, y: zero / floor, by: "zero predictor"}, {x, y: 1, by: "Kalman"});
      const where = memory => memory > 299.9 ? "300 or more" : memory < 2.001 ? "2 or less" : fixed(memory);
      const lowest = stars.map(({x, y, by}) => `${by} ${y.toFixed(2)} at ${where(x)}`).join("; ");
      return {
        datasets: {curve, stars},
        readout: `Lowest error, in multiples of the Kalman floor, and its window, in examples: ${lowest}. ` +
          `Zero predictor: ${(zero / floor).toFixed(2)}.`,
      };
    },

    /* First-order methods: what is left of the error against the eigenvalue, and the worst of it from 1 / kappa to 1. */
    firstOrder(values, {eigenvalues, top, points}) {
      const {kappa, steps} = values, curve = [], worst = [], said = [];
      const inside = Array.from({length: points}, (_, i) => kappa ** (i / (points - 1) - 1));
      for (const [by, polynomial] of Object.entries(methods)) {
        const p = polynomial(values), left = z => Math.abs(p(z));
        for (const x of eigenvalues) curve.push({x, y: left(x), by});
        const most = inside.map(x => ({x, y: left(x), by})).reduce((a, b) => b.y > a.y * (1 + 1e-9) ? b : a);
        if (most.y <= top) worst.push(most);
        const limit = 1 / Math.cosh(steps * Math.acosh((kappa + 1) / (kappa - 1))), own = by === "Chebyshev";
        const share = own ? limit : most.y;
        said.push(`${own ? "the limit, Chebyshev's," : by} ${share < 1e-6 ? "less than 0.000001" : fixed(share)}`);
      }
      for (const y of [0, top]) curve.push({x: 1 / kappa, y, by: "1/κ"});
      return {
        datasets: {curve, stars: worst},
        readout: `Of the error at the worst eigenvalue from 1/${kappa} to 1, ${steps} ${steps > 1 ? "steps leave" : "step leaves"}` +
          `: ${said.join("; ")}.`,
      };
    },

    /* The polynomial floor in high dimension: what is left of the error after each layer of a model of so many layers, on
       the floor with a register and above it without, and what equal steps leave. */
    polynomialFloor({ratio, layers, register}, {deepest}) {
      const c = 1 / ratio, curve = [], add = (by, risks) =>
        risks.forEach((y, x) => curve.push({x, y, by}));
      const floor = limitRisks(c, deepest), equal = limitEqualSteps(c, deepest);
      const model = register ? registerRisks(c, limitRegisters(c, layers)) : bestSets(c, limitSteps(c, layers));
      add("equal steps", equal.risks);
      add("the model", model);
      add("polynomial floor", floor);
      const times = (risks, k) => `${fixed(risks[k] / floor[k])} times the floor of ${k}`, early = layers - 1;
      const stopped = register ? `Stopped after ${early}, with the same numbers in them, it is on the floor of ${early}, too.` :
        `Stopped after ${early}, even with its best ${early} first, it leaves ${times(model, early)}.`;
      return {
        datasets: {curve, stars: [{x: layers, y: model[layers], by: "the model"}]},
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
      for (const x of grid) {
        curve.push({x, y: many(x / s), by: "density of eigenvalues"});
        curve.push({x, y: value(p, x / s), by: "made for this variance"});
        curve.push({x, y: reads ? value(own, x / s) : value(p, r * x / s), by: "the gated heads"});
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
      for (const [by, loss] of Object.entries(methods)) {
        for (const x of lengths) curve.push({x, y: loss(x), by});
      }
      const {worth} = fading(N0, alpha), far = lengths.at(-1);
      return {
        datasets: {curve, stars: [{x: N0, y: least, by: "S6, as trained"}]},
        readout: `At N = ${N0} the layer's examples count as ${fixed(worth)}; its loss is ${fixed(least)}, bounded by ` +
          `${fixed(mambaSharper(d, N0, kept))} (sharper) and ${fixed(mambaBound(d, N0))} (the paper's, for a half left); ` +
          `linear attention ${fixed(linearAttentionLoss(d, N0))}; answering 0: ${fixed(d / 2)}. With ${far} examples the ` +
          `layer as trained has ${fixed(mambaShifted(d, far, alpha, beta))}.`,
      };
    },

    /* The price of not knowing the future: a drift's power by frequency, and what four readers leave of a label. */
    drawnSpectrum({slow, middling, quick, fast, log_v}, {edges}) {
      const v = 10 ** log_v, widths = edges.slice(1).map((edge, i) => edge - (i ? edges[i] : 0));
      const {heights, errors} = bandErrors(widths, [slow, middling, quick, fast], v), curve = [];
      heights.forEach((height, i) => {
        for (const u of [edges[i], edges[i + 1]]) curve.push({x: u, y: Math.max(height, 0.011), by: "the drift"});
      });
      for (const [by, error] of Object.entries(errors)) {
        for (const x of [edges[0], edges.at(-1)]) curve.push({x, y: error + v, by});
      }
      const said = Object.entries(errors).map(([of, error]) => `${of} ${(100 * error).toFixed(1)}%`).join("; ");
      return {
        datasets: {curve},
        readout: `Errors in parts of the signal: ${said}. Not knowing the future costs a factor of ` +
          `${fixed(errors.Kalman / errors.smoother)}; a matrix saves one of ` +
          `${fixed(errors["gates of the key"] / errors.Kalman)} over gates of the key.`,
      };
    },

    /* What a filter loses that keeps a summary of its covariance, against the numbers it keeps */
    cheapCovariance({log_s, v}, {shares}) {
      const s = 10 ** log_s, floor = kalmanLargeD(s, v), top = epsDelta(s, v), curve = [];
      for (const share of shares) {
        curve.push({x: share, y: epsBlocks(share, s, v) / floor, by: "blocks"});
        curve.push({x: share, y: epsLowRank(share / 2, s, v) / floor, by: "best known directions"});
        curve.push({x: share, y: top / floor, by: "Longhorn"});
        curve.push({x: share, y: 1, by: "Kalman"});
      }
      const gain = eps => fixed(100 * (top - eps) / (top - floor));
      return {
        datasets: {curve},
        readout: `At s = ${fixed(s)} and v = ${fixed(v)} Longhorn has ${fixed(top / floor)} times the error of the Kalman ` +
          `filter. Of this gain a tenth of the matrix's numbers buys ${gain(epsLowRank(0.05, s, v))}% as best known ` +
          `directions and ${gain(epsBlocks(0.1, s, v))}% as blocks, half of them ${gain(epsLowRank(0.25, s, v))}% and ` +
          `${gain(epsBlocks(0.5, s, v))}%.`,
      };
    },

    /* Every model a fast weight: error over the Kalman floor against s, dimensions over memory, at the labels' noise v. */
    fastWeights({d, v, log_s}, {grid}) {
      const curve = [], best = [], lengths = squaredLengths(d), s = 10 ** log_s, here = fastWeightErrors(d, s, v, lengths);
      const drawn = ["GLA", "delta rule", "Longhorn", "Kalman"];
      for (const at of grid) {
        const errors = fastWeightErrors(d, at, v, lengths);
        for (const by of drawn) curve.push({x: at, y: errors[by] / errors.Kalman, by});
        curve.push({x: at, y: 1 / errors.Kalman, by: "zero predictor"});
      }
      for (const by of drawn) best.push({x: s, y: here[by] / here.Kalman, by});
      const said = best.slice(0, 3).map(({by, y}) => `${by} ${y.toFixed(2)}`).join("; ");
      return {
        datasets: {curve, stars: best},
        readout: `At s = ${s.toPrecision(3)}, where weights are remembered for about ${fixed(2 * d / s)} examples, errors in ` +
          `multiples of the Kalman floor: ${said}; zero predictor ${(1 / here.Kalman).toFixed(2)}. The floor itself is ` +
          `${fixed(100 * here.Kalman)}% of the signal.`,
      };
    },

    /* What gating can buy: error of a layer whose gates see some earlier keys, in units of what gates of the current key
       alone leave; a table at some numbers of keys and dimensions, straight in log (1 + keys) between. */
    earlierKeys({keys, log_d}, {windows, errors, floors, last}) {
      const d = 2 ** log_d, row = errors[d], curve = [], mark = k => Math.log2(1 + k);
      const at = k => {
        let i = 1;
        while (i < windows.length - 1 && windows[i] < k) i++;
        const part = (mark(k) - mark(windows[i - 1])) / (mark(windows[i]) - mark(windows[i - 1]));
        return row[i - 1] + part * (row[i] - row[i - 1]);
      };
      for (let k = 0; k <= last; k++) {
        curve.push({x: k, y: at(k), by: "gates that see earlier keys"});
        curve.push({x: k, y: 1, by: "gates of the current key"});
        curve.push({x: k, y: floors[d], by: "Kalman"});
      }
      const gained = (1 - at(keys)) / (1 - floors[d]);
      return {
        datasets: {curve, stars: [{x: keys, y: at(keys), by: "gates that see earlier keys"}]},
        readout: `In ${d} dimensions, gates that see ${keys} earlier ${keys === 1 ? "key" : "keys"} leave ` +
          `${at(keys).toFixed(3)} of the error of gates of the current key, the Kalman filter ` +
          `${floors[d].toFixed(3)}: ${Math.round(100 * gained)}% of the way.`,
      };
    },

    /* When the speed is unknown: the p that a gauge reads off its own errors, against the p that it sets its gates by. */
    gauge({log_s, v, told}, {d, grid}) {
      const s = 10 ** log_s, lengths = squaredLengths(d), assumed = v * told;
      const reads = p => leftByGatesAt(p, {d, s, v, told: assumed}, lengths) + v - assumed;
      const ends = [grid[0], grid.at(-1)], kept = p => Math.min(Math.max(p, ends[0]), ends[1]);
      const curve = [];
      for (const p of grid) {
        curve.push({x: p, y: kept(reads(p)), by: "the gauge reads"}, {x: p, y: p, by: "what it believed"});
      }
      let [low, high] = ends;
      for (let i = 0; i < 60; i++) {
        const p = (low + high) / 2;
        if (reads(p) > p) low = p; else high = p;
      }
      const rest = (low + high) / 2, left = leftByGatesAt(rest, {d, s, v, told: assumed}, lengths);
      const best = fastWeightErrors(d, s, v, lengths).Longhorn;
      return {
        datasets: {curve, stars: [{x: rest, y: rest, by: "the gauge reads"}]},
        readout: `At s = ${s.toPrecision(3)} and v = ${v}, told a noise of ${fixed(assumed)}, the gauge comes to rest at ` +
          `p = ${fixed(rest)}. There the layer leaves ${fixed(left)} of the signal; the best layer for this speed leaves ` +
          `${fixed(best)}.`,
      };
    },

    /* Which layer is enough at s and v: the cheapest that is within a share of the floor, from closed forms and Mesa's table. */
    layerMap({log_s, log_v, percent}, {s, v, mesa}) {
      const logV = v.map(Math.log), excess = mesa.map(row => row.map(times => Math.log(times - 1)));
      const here = 10 ** log_s, noise = 10 ** log_v, curve = [], open = {};
      s.forEach((at, i) => {
        let high = v.at(-1);
        const add = (layer, border) => {
          const low = Math.min(border, high);
          // An area ends where its two lines meet.
          if (high > low || open[layer]) curve.push({x: at, y: border, low, high, by: layer});
          open[layer] = high > low;
          high = low;
        };
        for (const [layer, border] of Object.entries(leastNoise(at, percent / 100, logV, excess[i]))) add(layer, border);
        add("Kalman", v[0]);
      });
      const floor = kalmanLargeD(here, noise), column = excess.map(row => between(Math.log(noise), logV, row));
      const times = {
        "GLA": glaLargeD(here, noise) / floor, "gates of the key": deltaLargeD(here, noise) / floor,
        "Mesa": 1 + Math.exp(between(Math.log(here), s.map(Math.log), column)), "Kalman": 1,
      };
      const enough = Object.keys(times).find(layer => times[layer] <= 1 + percent / 100);
      const all = Object.entries(times).slice(0, 3).map(([layer, ratio]) => `${layer} ${ratio.toFixed(2)}`).join("; ");
      return {
        datasets: {curve, stars: [{x: here, y: noise, by: enough}]},
        readout: `At s = ${fixed(here)} and v = ${fixed(noise)} errors, in multiples of the Kalman floor, are: ${all}. ` +
          `The cheapest within ${fixed(percent)}%: ${enough}. The floor itself is ${fixed(100 * floor)}% of the signal.`,
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
        const add = (method, value) => rows.push({x: t, y: value, by: method});
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

    /* What sharing costs: the share of the squared error that is left after each layer, by the best numbers for all
       prompts (exact) and by conjugate gradients, which choose their own for each (means over prompts). Both are tables,
       at each d and n/d of the sliders; the floor's limit is a closed form. */
    sharing({d, ratio}, {sizes, ratios, floor, own}) {
      const at = table => table[sizes.indexOf(d)][ratios.indexOf(ratio)], curve = [], shared = at(floor), told = at(own);
      const last = shared.length - 1, limit = limitRisks(1 / ratio, last);
      const lines = {"polynomial floor": shared, "preconditioned CG": told, "floor in high dimension": limit};
      for (const [by, values] of Object.entries(lines)) {
        values.forEach((y, x) => curve.push({x, y, by}));
      }
      const percent = left => `${fixed(100 * left)}%`;
      return {
        datasets: {curve},
        readout: `At d = ${d} and n = ${ratio * d}, after ${last} layers, the best shared numbers leave ` +
          `${percent(shared[last])} of the squared error, conjugate gradients ${percent(told[last])}: sharing leaves ` +
          `${fixed(shared[last] / told[last])} times as much, and after one layer ${fixed(shared[1] / told[1])} times. ` +
          `In high dimension the best shared numbers leave ${percent(limit[last])}.`,
      };
    },

    /* GD++: what each layer of a trained network sees of the eigenvalues, its steps and its B made larger or smaller, and
       its risk over the whole law, by Gauss's rule for the mean spectrum. */
    plusPlus({layers, step, bend}, {steps, bends, nodes, weights, grid, floor}) {
      const scaled = (numbers, by) => numbers[layers - 2].map(value => by * value), curve = [];
      const own = scaled(steps, step), {seen} = movedInputs(grid, own, scaled(bends, bend));
      seen.forEach((h, k) => h.forEach((y, i) => curve.push({x: grid[i], y, by: `layer ${k + 1}`})));
      for (const x of [grid[0], grid.at(-1)]) curve.push({x, y: 1, by: "all alike"});
      const mean = v => v.reduce((sum, x, i) => sum + weights[i] * x, 0) / weights.reduce((a, b) => a + b);
      const over = by => movedInputs(nodes, own, scaled(bends, by)), law = over(bend);
      const risk = p => Math.log(p.reduce((sum, x, i) => sum + weights[i] * x * x, 0)).toFixed(2);
      const spread = h => `${fixed(100 * Math.sqrt(mean(h.map(x => x * x)) / mean(h) ** 2 - 1), 2)}%`;
      return {
        datasets: {curve},
        readout: `Standard deviation over mean of what the ${layers} layers see: ` +
          `${law.seen.map(spread).join(", ")}. The ln of the risk over the whole law is ${risk(law.p)}; without B, with ` +
          `the same steps, ${risk(over(0).p)}; the polynomial floor of ${layers} layers is ` +
          `${Math.log(floor[layers]).toFixed(2)}.`,
      };
    },

    /* Three steps chosen by hand: the risk after each, beside what is known. */
    threeSteps({a0, a1, a2}, {known, moments, floor, highest}) {
      const a = [a0, a1, a2], risks = stepRisks(a, moments), end = Math.log(risks[3]), times = risks[3] / floor[3];
      const own = risks.map((risk, x) => ({x, y: Math.log(risk), by: "your steps", piece: 0}));
      const ln = risks.slice(1).map(risk => Math.log(risk).toFixed(2));
      return {
        datasets: {curve: [...known, ...own], stars: end <= highest ? [{x: 3, y: end, by: "your steps"}] : []},
        readout: `With the steps ${a.map(step => step.toFixed(2)).join(", ")} the ln of the risk is ${ln[0]} after one ` +
          `layer, ${ln[1]} after two and ${ln[2]} after three. There the risk is ${times < 10 ? times.toFixed(3) : fixed(times)} times ` +
          `the floor's, whose ln is ${Math.log(floor[3]).toFixed(2)}.`,
      };
    },

    /* Why deep stacks diverge: error over all queries against how much longer the newest examples are, labels with them.
       The star is where the error comes to `ruin` times that of answering 0. */
    stretched({layers, steps, long}, {x, y, w, stretches, ruin}) {
      const curve = [], last = stretches.at(-1), error = how => stackError({x, y, w}, {layers, steps, long, ...how});
      const along = (by, how) => {
        const left = stretches.map(stretch => error({by: stretch, ...how})), at = left.findIndex(each => !(each < ruin));
        left.forEach((each, i) => { if (each < 1e300) curve.push({x: stretches[i], y: each, by}); });
        let low = stretches[Math.max(at - 1, 0)], high = stretches[Math.max(at, 0)];
        for (let i = 0; i < 22; i++) {
          const mid = (low + high) / 2;
          if (error({by: mid, ...how}) < ruin) low = mid; else high = mid;
        }
        return {edge: at < 0 ? Infinity : high, end: left.at(-1)};
      };
      const one = along("one layer", {layers: 1}), own = layers > 1 ? along("the stack", {}) : {...one};
      if (layers === 1) curve.push(...curve.map(row => ({...row, by: "the stack"})));
      const stars = own.edge > 1 && own.edge < Infinity ? [{x: own.edge, y: ruin, by: "the stack"}] : [];
      const flat = error({normalised: true});
      for (const x of stretches) {
        curve.push({x, y: flat, by: "the stack, normalised"}, {x, y: 1, by: "zero predictor"});
      }
      const where = ({edge}) => edge <= 1 ? "at any length" : edge < Infinity ? `at ${edge.toFixed(2)} times the length` :
        `at no length up to ${fixed(last)} times`;
      const size = own.end < 1e4 ? fixed(own.end) : own.end < 1e300 ? `10 to the power ${Math.round(Math.log10(own.end))}` :
        "more than 10 to the power 300";
      return {
        datasets: {curve, stars},
        readout: `${layers > 1 ? `${layers} layers are` : "1 layer is"} first ${ruin} times as wrong as answering 0 ${where(own)}` +
          `${layers > 1 ? `, one layer ${where(one)}` : ""}. At ${fixed(last)} times the length the stack's error is ${size}; ` +
          `on normalised tokens it is ${fixed(flat)} at any length.`,
      };
    },

    /* What selection is for: risk along gradient descent of a layer whose parts select or not and are trained or not. */
    selection({N, start, selectB, selectC, trainB, trainC}, {d, XX, YY, K, eta, steps, every}) {
      const task = bowl(d, N), p = d + 1, q = d + 2, all = size => Array(size).fill(1), curve = [];
      const alone = size => Array.from({length: size}, (_, i) => +(i === size - 1));  // of all columns only the bias
      const descend = (by, keepB, keepC, trains) => {
        const scaled = (rows, a, b) => rows.map((row, i) => row.map((v, j) => v * start ** 2 * a[i] * b[j]));
        const from = {XX: scaled(XX, keepB, keepB), YY: scaled(YY, keepC, keepC), K: scaled(K, keepC, keepB)};
        let loss;
        descendGrams(from, task, eta, steps, (k, step) => {
          if (step % every && step !== steps) return false;
          loss = bowlLoss(k, task);
          if (loss < 1e100) curve.push({x: step, y: loss, by});
          return !(loss < 1e100);
        }, trains);
        return loss;
      };
      const keepB = selectB ? all(q) : alone(q), keepC = selectC ? all(p) : alone(p);
      const mine = descend("this layer", keepB, keepC, {X: trainB ? keepB : Array(q).fill(0), Y: trainC ? keepC : Array(p).fill(0)});
      descend("whole layer", all(q), all(p), {});
      for (const x of [0, steps]) curve.push({x, y: task.floor, by: "L*"}, {x, y: d / 2, by: "zero predictor"});
      const why = !(selectB && selectC) ? `Without selection in ${selectB ? "C" : selectC ? "B" : "B and C"} it can do no better than the zero predictor.` :
        !(trainB || trainC) ? "With both halves frozen, it learns nothing." :
        !(trainB && trainC) ? `${trainB ? "C" : "B"} stays as it was drawn, and the other half has adapted to it.` : "All parts are in place.";
      return {
        datasets: {curve},
        readout: `After ${fixed(steps, 9)} steps this layer has a risk of ${mine < 1e100 ? fixed(mine, 4) : "more than can be drawn"}. ` +
          `The least possible is L* = ${fixed(task.floor, 4)}; the zero predictor has ${fixed(d / 2)}. ${why}`,
      };
    },

    /* Exponential convergence: distance from the bottom along descents from some starts, at the rate that the weights
       foretell, and at the proof's. */
    convergence({c, start, N}, {d, d_h, starts, steps, every}) {
      const task = bowl(d, N, 2 ** (-1 / N), false), eta = c / (d ** 2 * d_h), curve = [], rates = [], slopes = [];
      let lost = 0, first = 0, worst = 0;
      starts.forEach(({XX, YY, K}, run) => {
        const scaled = rows => rows.map(row => row.map(v => v * start ** 2)), way = [];
        const end = descendGrams({XX: scaled(XX), YY: scaled(YY), K: scaled(K)}, task, eta, steps, (k, step) => {
          if (step % every) return false;
          const left = bowlDistance(k, task);
          if (left < 1e6 && left > 1e-10) way.push({x: step, y: left, by: "descent, five starts", piece: `a${run}`});
          return !(left < 1e6 && left > 1e-10);
        });
        curve.push(...way);
        first += way[0].y / starts.length;
        const done = bowlDistance(end.K, task), near = way.find(({y}) => y < 0.1);
        worst = Math.max(worst, done);
        if (!(done < 1e6)) { lost++; return; }
        const shrinks = eta * task.beta1 * (leastOfBlock(end.XX, d + 1, d) + leastOfBlock(end.YY, d, d));
        if (!near || way.at(-1).y > 1e-3 || shrinks >= 1) return;
        const r = -Math.log1p(-shrinks), straight = way.filter(({y}) => y < 1e-3), [a, b] = [straight[0], straight.at(-1)];
        rates.push(r);
        if (b.x > a.x) slopes.push(Math.log(a.y / b.y) / (b.x - a.x));
        for (const x of [near.x, steps]) {
          curve.push({x, y: near.y * Math.exp(-r * (x - near.x)), by: "predicted rate r", piece: `b${run}`});
        }
      });
      const proof = eta * task.beta1 * d_h / 2;
      for (const x of [0, steps]) curve.push({x, y: first * Math.exp(-proof * x), by: "rate in the proof", piece: "c"});
      const span = values => [...new Set([Math.min(...values), Math.max(...values)].map(v => fixed(v)))].join(" to ");
      return {
        datasets: {curve},
        readout: (lost ? `The step is too long: ${lost} of ${starts.length} descents diverge. ` : "") + (slopes.length ?
          `Measured rates are ${span(slopes)} a step, predicted ${span(rates)}. ` : lost < starts.length ?
          `After ${fixed(steps, 9)} steps the farthest is still ${fixed(worst)} away. ` : "") +
          `The proof's rate, made for a start of size 1, is ${fixed(proof)}.`,
      };
    },

    /* Gated linear attention: how much an example counts against its age, for a gate and for weights of any shape. */
    gate({lam, gamma, d}, {n, sigma_e, oldest}) {
      const task = {gamma, d, n, sigma_e, sigma_w: 1}, {weights, error} = positionWeights(task), curve = [];
      for (let age = 0; age <= oldest; age++) {
        curve.push({x: age, y: lam ** age, by: "GLA"}, {x: age, y: 1, by: "linear attention"});
        curve.push({x: age, y: weights[age] / weights[0], by: "best possible"});
      }
      const zero = zeroPredictor(task), share = loss => (100 * loss / zero).toFixed(1), best = optimalForgetting(task);
      const worth = lam < 1 ? (1 - lam ** n) / (1 - lam) : n;
      return {
        datasets: {curve},
        readout: `With λ = ${lam} all ${n} examples together count as much as ${fixed(worth)} of the newest. The error is ` +
          `${share(trainingError({...task, lam}))}% of the zero predictor's; at the best λ, ${best.toFixed(3)}, it is ` +
          `${share(trainingError({...task, lam: best}))}%; no weights of any shape do better than ${share(error)}%.`,
      };
    },

    /* Why stationarity fails: error against the prompt's length when the rule moves, of an average and of a gated layer. */
    unlearning({gamma, lam}, {d, sigma_e, lengths}) {
      const n = lengths.at(-1), task = {d, gamma, n, sigma_e, sigma_w: sigma_e / Math.sqrt(1 - gamma ** 2)}, curve = [];
      const average = sharesMissed({...task, lam: 1}), gated = sharesMissed({...task, lam}), floor = floorAlong(task);
      for (const examples of lengths) {
        curve.push({x: examples, y: 1, by: "zero predictor"}, {x: examples, y: average[examples - 1], by: "linear attention"});
        curve.push({x: examples, y: gated[examples - 1], by: "GLA"}, {x: examples, y: floor[examples], by: "Kalman"});
      }
      const turn = average.indexOf(Math.min(...average)), best = optimalForgetting(task), zero = zeroPredictor(task);
      const share = left => `${(100 * left).toFixed(0)}%`, half = fixed(halfLife(gamma));
      return {
        datasets: {curve, stars: [{x: turn + 1, y: average[turn], by: "linear attention"}]},
        readout: `Linear attention is best with ${turn + 1} ${turn ? "examples" : "example"}, where it has ${share(average[turn])} of ` +
          `the error of always predicting 0; with ${n} examples it has ${share(average[n - 1])}. With ${n} examples GLA has ` +
          `${share(gated[n - 1])} at λ = ${lam} and ${share(trainingError({...task, lam: best}) / zero)} at the best λ, ` +
          `${best.toFixed(3)}; the Kalman floor is ${share(floor[n])}. The half-life of the weights is ${half} examples.`,
      };
    },

    /* Gradient flow: error against time of two flows from the same v and U, one with p and q, one without; the levels of the
       best layer and of the trap. */
    trap({lam, gamma, pq, v}, {d, n, sigma_e, U, times}) {
      const loss = populationLoss({d, n, gamma, lam, sigma_e}), curve = [], ends = {};
      const starts = {"the start": [v, U, U, pq, pq], "the same with p = q = 0": [v, U, U, 0, 0]};
      for (const [method, start] of Object.entries(starts)) {
        const left = follow(loss.velocity, start, times).map(at => loss.error(at) / loss.zero);
        // What is far above the levels would press them together.
        times.forEach((time, i) => { if (left[i] <= 1.05) curve.push({x: time, y: left[i], by: method}); });
        ends[method] = left.at(-1);
      }
      const levels = {"the best layer": loss.best / loss.zero, "the trap": loss.trap / loss.zero};
      for (const [method, left] of Object.entries(levels)) {
        curve.push({x: times[0], y: left, by: method}, {x: times.at(-1), y: left, by: method});
      }
      const near = (left, level) => Math.abs(left - level) < 0.01 * (levels["the trap"] - levels["the best layer"]);
      const where = left => near(left, levels["the best layer"]) ? "reaches the best layer" :
        near(left, levels["the trap"]) ? "is in the trap" : `has ${(100 * left).toFixed(1)}%`;
      const [given, without] = Object.values(ends).map(where);
      return {
        datasets: {curve},
        readout: `At this gate the trap is a ${loss.curvature > 0 ? "minimum" : "saddle"}. The start has ` +
          `${fixed(100 * loss.error(starts["the start"]) / loss.zero, 4)}% of the error of answering 0. At time ${times.at(-1)} it ` +
          `${given}; with p = q = 0 it ${without}. The best layer has ${(100 * levels["the best layer"]).toFixed(1)}%, ` +
          `the trap ${(100 * levels["the trap"]).toFixed(1)}%.`,
      };
    },

    /* Noisy labels: risk against their noise of a layer that averages and of LMS, with a step and at its best one; the
       floor is a table. The star is where LMS gets worse than the layer. */
    noisy({N, step}, {d, sigmas, lengths, ridge}) {
      const curve = [], {worth} = fading(N, 2 ** (-1 / N)), full = 1 / (d + 2);
      const steps = Array.from({length: 400}, (_, i) => 1e-3 * (full / 1e-3) ** (i / 399));
      const at = sigma => ({
        "S6, trained for the noise": noisyAverage(d, worth, sigma),
        "LMS": noisyLms(d, N, step * full, sigma),
        "LMS, best step": Math.min(...steps.map(mu => noisyLms(d, N, mu, sigma))),
        "ridge regression": ridge[lengths.indexOf(N)][sigmas.indexOf(sigma)],
      });
      const found = sigmas.map(at), worse = found.findIndex(risk => risk["LMS"] > risk["S6, trained for the noise"]);
      for (const by of Object.keys(found[0])) {
        sigmas.forEach((sigma, i) => curve.push({x: sigma, y: found[i][by], by}));
      }
      const back = found.findIndex((risk, i) => i > worse && risk["LMS"] <= risk["S6, trained for the noise"]);
      const to = back < 0 ? null : fixed(sigmas[back - 1]), from = worse > 0 ? `from a noise of ${fixed(sigmas[worse])}` : null;
      const where = from ? `${from} ${to ? `to ${to}` : "on"}` : to ? `up to a noise of ${to}` : "at any noise drawn here";
      const one = at(1), said = Object.entries(one).map(([method, risk]) => `${method} ${fixed(risk)}`).join("; ");
      return {
        datasets: {curve, stars: worse < 0 ? [] : [{x: sigmas[worse], y: found[worse]["LMS"], by: "LMS"}]},
        readout: (worse < 0 ? `LMS at this step is better than averaging up to a noise of ${fixed(sigmas.at(-1))}. ` :
          `Averaging is better than LMS at this step ${where}. `) +
          `Risks at a noise of 1: ${said}.`,
      };
    },

    /* When text drifts: accuracy against lam of one layer on labelled rows whose sign turns, chance and the rule known.
       The star is at the lam of least squared error. */
    flips({flip, rho, n}, {lams}) {
      const task = {flip, rho, n}, known = signCeiling(rho), curve = [];
      for (const x of lams) curve.push({x, y: 100 * signAccuracy(x, task), by: "one layer"});
      for (const x of [lams[0], lams.at(-1)]) {
        curve.push({x, y: 100 * known, by: "the rule known"}, {x, y: 50, by: "chance"});
      }
      const lam = signForgetting(task), percent = at => (100 * signAccuracy(at, task)).toFixed(1);
      return {
        datasets: {curve, stars: [{x: lam, y: 100 * signAccuracy(lam, task), by: "one layer"}]},
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
        w.forEach((weight, j) => curve.push({x: i, y: weight, by: "w" + "₁₂₃"[j]}));
        const edge = 2 * Math.sqrt(k[i]);
        curve.push({x: i, y: edge, by: "+2 s.d."}, {x: i, y: -edge, by: "−2 s.d."});
        if (i && i <= n) curve.push({x: i, y: w.reduce((sum, wj, j) => sum + wj * x[i][j], 0), by: "label y"});
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
    rescaledRisk, simplexRatio, stepRisks, movedInputs,
    fading, mambaOptimum, mambaShifted, mambaBound, mambaSharper, linearAttentionLoss,
    squaredLengths, kalmanLargeD, fastWeightErrors, bandErrors,
    stackWeights, stackError, bowl, descendGrams, bowlLoss, bowlDistance, leastOfBlock, noisyLms,
    positionWeights, sharesMissed, floorAlong, populationLoss, follow,
    memoryRight, signCeiling, signAccuracy, signError, signForgetting, explorables,
  };
})();
