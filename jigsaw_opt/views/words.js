// Numbers with their nouns or units.
const counted = (number, one, several = one + "s") => `${number.toLocaleString("en")} ${number === 1 ? one : several}`;
const size = bytes => bytes >= 1e9 ? (bytes / 1e9).toFixed(3) + " GB" : bytes >= 1e6 ? (bytes / 1e6).toFixed(3) + " MB" : bytes + " B";
