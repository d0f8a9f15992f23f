// What is said of a mean over runs, and of a change from another in per cent: an interval of no width proves nothing.
const signed = value => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(1);
const share = value => signed(value) + " %";
const interval = (it, told) => it.low === null ? "one run, no interval" : it.low === it.high ? "all runs alike" : told(it.low) + " … " + told(it.high);
const certainty = it => it.low === null || it.low === it.high ? "" : it.low <= 0 && it.high >= 0 ? "may be chance" : "beyond chance";
const change = it => it.mean === 0 && it.low === it.high ? "no change" : share(it.mean);
