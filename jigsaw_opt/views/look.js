"use strict";
// What every page has: its data, and a few short words for making elements. Names are set as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(tag, text, places = {}) {
  const made = Object.assign(document.createElement(tag), places);
  if (text !== undefined) made.textContent = text;
  return made;
}

function swatch(colour) {
  const made = element("i", "", { className: "swatch" });
  made.style.background = colour;
  return made;
}

// A tooltip beside the pointer that stays inside the window; no text hides it.
function tell(text, event) {
  const tip = $("tip");
  tip.style.display = text ? "block" : "none";
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)) + "px";
}
