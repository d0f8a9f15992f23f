// Names with what they mean, as a list of definitions.
function define(place, pairs) {
  for (const [name, meaning] of pairs) {
    const made = element("div");
    made.append(element("dt", name), element("dd", meaning));
    place.append(made);
  }
}

// A text in a cell that may break behind the signs between words of a policy or a setting.
function breakable(cell, text) {
  for (const part of text.split(/(?<=[:=,])/)) cell.append(part, element("wbr"));
}
