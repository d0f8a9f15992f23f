// Names with what they mean, as a list of definitions.
function define(place, pairs) {
  for (const [name, meaning] of pairs) {
    const made = element("div");
    made.append(element("dt", name), element("dd", meaning));
    place.append(made);
  }
}
