// The rule `token` as a runner: one file for Node, without packages, that the gate can speak to.
//
//     specref gate --command "node chain.js"
//     specref gate --command "node chain.js --fault residual_is_target"
//
// One JSON object per line in, one out; specref/gate/runner.py describes them.
"use strict";

// Names as in specref.FAULTS.
const FAULTS = ["residual_is_target", "bonus_from_last_draft_row", "coin_reused"];
const GRID = 2 ** 24;

// The rule.

/** Return the first token whose cumulative weight exceeds u times the total; never one of weight 0. */
function inverseCdf(weights, u) {
  const total = weights.reduce((sum, w) => sum + w, 0);
  let sum = 0;
  let last = 0;
  for (let x = 0; x < weights.length; x++) {
    if (weights[x] <= 0) continue;
    sum += weights[x];
    last = x;
    if (u * total < sum) break;
  }
  return last;
}

/** Return the law after a refusal: (p - q)+, or p where rounding has left nothing of that. */
function residual(p, q) {
  const left = p.map((w, x) => Math.max(w - q[x], 0));
  return left.some((w) => w > 0) ? left : p;
}

/** Run one round on given draws: a coin per drafted token, then the terminal draw. */
function verify({ p, q, tokens }, u, fault) {
  const gamma = tokens.length;
  for (let at = 0; at < gamma; at++) {
    const x = tokens[at];
    if (u[at] * q[at][x] < p[at][x]) continue;
    const law = fault === "residual_is_target" ? p[at] : residual(p[at], q[at]);
    const draw = fault === "coin_reused" ? u[at] : u[gamma];
    return [...tokens.slice(0, at), inverseCdf(law, draw)];
  }
  const early = fault === "bonus_from_last_draft_row" && gamma > 0;
  return [...tokens, inverseCdf(early ? q[gamma - 1] : p[gamma], u[gamma])];
}

/** Return a source of draws for "sample": sfc32, of which the upper 24 bits are one draw. */
function source(seed) {
  let [a, b, c, counter] = [0, seed >>> 0, Math.floor(seed / 2 ** 32), 1];
  function next() {
    const out = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + out) | 0;
    return (out >>> 8) / GRID;
  }
  for (let i = 0; i < 12; i++) next(); // until the seed has reached every bit of the state
  return next;
}

// Lines in and out.

/** Return laws given as bits of float32, each row divided by its sum. */
function laws(rows) {
  return rows.map((row) => {
    const weights = Array.from(new Float32Array(Uint32Array.from(row).buffer));
    const total = weights.reduce((sum, w) => sum + w, 0);
    return weights.map((w) => w / total);
  });
}

function answer(request, fault) {
  if ("specref" in request) {
    if (request.specref !== 1) throw new Error("this runner speaks version 1 of the protocol");
    const name = fault ? `chain.js with ${fault}` : "chain.js";
    return { name, rules: ["token"], modes: ["sample", "decide"] };
  }
  const { id, tokens } = request;
  const chain = { p: laws(request.p), q: laws(request.q), tokens };
  if (request.do === "decide") {
    const rows = request.draws.map((row) => verify(chain, row.map((k) => k / GRID), fault));
    return { id, rows };
  }
  const next = source(request.seed);
  const round = () => verify(chain, Array.from({ length: tokens.length + 1 }, next), fault);
  return { id, rows: Array.from({ length: request.n }, round) };
}

function main() {
  const [option, fault, ...rest] = process.argv.slice(2);
  if (option !== undefined && (option !== "--fault" || !FAULTS.includes(fault) || rest.length)) {
    process.stderr.write(`usage: chain.js [--fault NAME]; NAME is one of ${FAULTS.join(" ")}\n`);
    process.exit(2);
  }
  const lines = require("readline").createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    let said;
    try {
      said = answer(JSON.parse(line), fault);
    } catch (error) {
      said = { error: error.message };
    }
    process.stdout.write(JSON.stringify(said) + "\n");
  });
}

main();
