// Formats numbers like the tables and sentences of the page: with three significant digits, and never 0 for a nonzero
// number. This is a port of language/units.py; the page contains the units of that module.
"use strict";
page.units = (() => {
  const PLAIN_DECIMALS = 6, PERCENT = "%";
  const families = JSON.parse(document.getElementById("units").textContent); // each unit is [name, size, maximum decimals]
  const familyOf = (name) => families.find((family) => family.some(([unit]) => unit === name));

  // Formats a number with ``decimals`` decimals. Ties are rounded to the even digit, as in Python: 122.5 becomes 122.
  const fixed = (number, decimals) => {
    if (!number) return "0";
    const size = Math.abs(number), exact = size.toFixed(Math.min(decimals + 60, 100));
    const whole = exact.slice(0, exact.length - (Math.min(decimals + 60, 100) - decimals));
    const tie = /^50*$/.test(exact.slice(whole.length)) && /[02468]\.?$/.test(whole);
    const digits = tie ? whole.replace(/\.$/, "") : size.toFixed(decimals);
    if (!/[1-9]/.test(digits)) return `${number > 0 ? "<" : ">-"}${(10 ** -decimals).toFixed(decimals)}`;
    return (number < 0 ? "-" : "") + digits.replace(/^\d+/, (text) => text.replace(/\B(?=(\d{3})+$)/g, ","));
  };

  // Returns the number of decimals that three significant digits need after rounding: 9.996 becomes 10.0.
  const decimalsOf = (number) => Math.max(0, 2 - Number(number.toExponential(2).split("e")[1]));

  const count = (number) => {
    if (Number.isInteger(number)) return fixed(number, 0);
    const text = fixed(number, Math.min(decimalsOf(number), PLAIN_DECIMALS));
    return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
  };

  const inUnit = (scaled, [name, , most]) => {
    const whole = name === PERCENT && Math.abs(scaled) >= 1 && Number.isInteger(Number(scaled.toFixed(9)));
    return fixed(scaled, whole ? 0 : Math.min(decimalsOf(scaled), most));
  };

  // Formats a number in its unit, without the unit's name.
  const digits = (value, name) => {
    const family = familyOf(name);
    return family ? inUnit(value, family.find(([unit]) => unit === name)) : count(value);
  };

  // Formats a number that is given in the unit ``name`` in a suitable unit; "" if the number is unknown.
  const quantity = (value, name) => {
    if (value === null || value === undefined) return "";
    const family = familyOf(name);
    if (!family) return name ? `${count(value)} ${name}` : count(value);
    const product = value * family.find(([unit]) => unit === name)[1], near = Math.round(product);
    const base = near && Math.abs(product - near) < 1e-6 ? near : product; // 0.0001225 s is exactly 122500 ns
    let best = family[0];
    for (const unit of family.slice(1)) if (Math.abs(base) >= unit[1] - best[1] / 2) best = unit;
    return `${inUnit(base / best[1], best)}${best[0] === PERCENT ? "" : " "}${best[0]}`;
  };

  // Formats a number for an axis, without trailing zeros.
  const tick = (value, name) => quantity(value, name).replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "");

  return { count, digits, quantity, tick, share: (ratio) => quantity(ratio * 100, PERCENT), duration: (ns) => quantity(ns, "ns") };
})();
