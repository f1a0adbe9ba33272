// The comparison as Python wrote it into the page, and what follows from it at once.

const comparison = JSON.parse(byId("comparison").textContent);
const { schemes, target } = comparison;
const epsilon = `ε = ${short(target)}`;
const severalSeeds = schemes.some((scheme) => scheme.seeds.length > 1);

function sum(a, b) {
  return a === null || b === null ? null : a + b;
}

/** The run in the middle: by the cost at which it reaches the target, then by where it ends. */
function middleSeed(seeds) {
  const rank = (run, s) => {
    const reached = run.grad_norm2.findIndex((value) => value !== null && value <= target);
    const last = run.grad_norm2.filter((value) => value !== null).at(-1);
    return { s, cost: reached < 0 ? Infinity : run.cost[reached], last: last ?? Infinity };
  };
  const order = seeds
    .map(rank)
    .sort((a, b) => (a.cost === b.cost ? a.last - b.last : a.cost - b.cost));
  return order[Math.floor((order.length - 1) / 2)]?.s;
}

for (const scheme of schemes) {
  scheme.cost_to_target = sum(scheme.gradients_to_target, scheme.products_to_target);
  for (const run of scheme.seeds) run.cost = run.gradients.map((g, j) => g + run.products[j]);
  scheme.middle = middleSeed(scheme.seeds);
}
