// Scales: from data to pixels, where the ticks are, and what is written there.

const BETWEEN_TICKS = 60; // pixels

/** Ticks at 1, 2 or 5 times a power of ten, about `most` of them. */
function linearTicks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((candidate) => candidate >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const tick = (_, i) => Number(((first + i) * step).toPrecision(12)); // 0.3 and not 3 × 0.1
  return Array.from({ length: last - first + 1 }, tick);
}

/** Ticks at powers of ten; within less than two decades at 1, 2 and 5 times them. */
function logTicks(low, high, most) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) {
    const fine = [];
    for (let e = first - 1; e <= last; e++) fine.push(...[1, 2, 5].map((m) => Number(`${m}e${e}`)));
    const inside = fine.filter((tick) => low <= tick && tick <= high);
    return inside.length > 1 ? inside : linearTicks(low, high, most);
  }
  const step = Math.max(1, Math.ceil((last - first) / most));
  const ticks = [];
  for (let e = Math.ceil(first / step) * step; e <= last; e += step) ticks.push(Number(`1e${e}`));
  return ticks;
}

/** From values to the pixels from … to, with room before and after as parts of their span. */
function makeScale(values, [from, to], log, room) {
  const forward = log ? Math.log10 : (value) => value;
  const backward = log ? (value) => 10 ** value : (value) => value;
  let [low, high] = extremes(values).map(forward);
  if (high === low) [low, high] = [low - 0.5, high + 0.5];
  const span = high - low;
  [low, high] = [low - room[0] * span, high + room[1] * span];
  const scale = (value) => from + ((forward(value) - low) / (high - low)) * (to - from);
  scale.invert = (pixel) => backward(low + ((pixel - from) / (to - from)) * (high - low));
  const most = Math.max(2, Math.abs(to - from) / BETWEEN_TICKS);
  scale.ticks = (log ? logTicks : linearTicks)(backward(low), backward(high), most);
  const exponents = log ? scale.ticks.map(Math.log10) : [];
  const powers = exponents.every(Number.isInteger) && exponents.some((e) => Math.abs(e) > 2);
  const inFull = (tick) => (Math.abs(tick) >= 1e3 ? count(tick) : short(tick, 6));
  scale.label = powers ? power : inFull;
  return scale;
}
