// Numbers with their nouns.
const counted = (number, one, several = one + "s") => `${number.toLocaleString("en")} ${number === 1 ? one : several}`;
