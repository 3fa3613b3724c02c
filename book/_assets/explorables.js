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

  /* icl.theory.gla.optimal_forgetting: a grid, then golden section */
  function optimalForgetting(task) {
    const error = lam => trainingError({...task, lam});
    let best = 1;
    for (let i = 1; i <= 400; i++) if (error(i / 400) <= error(best)) best = i / 400;
    let low = Math.max(best - 1 / 400, 0), high = Math.min(best + 1 / 400, 1);
    const ratio = (Math.sqrt(5) - 1) / 2;
    while (high - low > 1e-10) {
      const a = high - ratio * (high - low), b = low + ratio * (high - low);
      if (error(a) < error(b)) high = b; else low = a;
    }
    return error(1) <= error((low + high) / 2) ? 1 : (low + high) / 2;
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
        datasets: {curve, best: [{lam: best, times: least / floor, method: "GLA"}]},
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
        datasets: {curve, best: [best]},
        readout: `Keeping λ = ${lam} at test gives error ${fixed(kept)}, the best test λ, ${best.lam.toFixed(2)}, ` +
          `${fixed(best.times * floor)}; a layer trained for this test ${fixed(own)}, answering 0 ${fixed(zero)}, ` +
          `the Kalman floor ${fixed(floor, 2)}.`,
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
    weightVariances, startForgotten, halfLife, explorables,
  };
})();
