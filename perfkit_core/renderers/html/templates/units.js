// Numbers as the tables and sentences of the page show them: a port of language/units.py, which the page takes the
// units from. Three significant digits; never 0 for what is not 0.
"use strict";
page.units = (() => {
  const PLAIN_DECIMALS = 6, PERCENT = "%";
  const families = JSON.parse(document.getElementById("units").textContent); // of [name, size, most decimals]
  const familyOf = (name) => families.find((family) => family.some(([unit]) => unit === name));

  // With so many decimals; ties go to the even digit, as they do in Python: 122.5 is 122.
  const fixed = (number, decimals) => {
    if (!number) return "0";
    const size = Math.abs(number), exact = size.toFixed(Math.min(decimals + 60, 100));
    const whole = exact.slice(0, exact.length - (Math.min(decimals + 60, 100) - decimals));
    const tie = /^50*$/.test(exact.slice(whole.length)) && /[02468]\.?$/.test(whole);
    const digits = tie ? whole.replace(/\.$/, "") : size.toFixed(decimals);
    if (!/[1-9]/.test(digits)) return `${number > 0 ? "<" : ">-"}${(10 ** -decimals).toFixed(decimals)}`;
    return (number < 0 ? "-" : "") + digits.replace(/^\d+/, (text) => text.replace(/\B(?=(\d{3})+$)/g, ","));
  };

  // What three digits take, after rounding to them: 9.996 is 10.0.
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

  // A number in a unit, without the unit's name.
  const digits = (value, name) => {
    const family = familyOf(name);
    return family ? inUnit(value, family.find(([unit]) => unit === name)) : count(value);
  };

  // A number in a unit, in the unit that suits it; "" for what is not known.
  const quantity = (value, name) => {
    if (value === null || value === undefined) return "";
    const family = familyOf(name);
    if (!family) return name ? `${count(value)} ${name}` : count(value);
    const product = value * family.find(([unit]) => unit === name)[1], near = Math.round(product);
    const base = Math.abs(product - near) < 1e-6 ? near : product; // 0.0001225 s are 122500 ns, and no fraction more
    let best = family[0];
    for (const unit of family.slice(1)) if (Math.abs(base) >= unit[1] - best[1] / 2) best = unit;
    return `${inUnit(base / best[1], best)}${best[0] === PERCENT ? "" : " "}${best[0]}`;
  };

  // A place on an axis, whose numbers are round: without zeros at the end.
  const tick = (value, name) => quantity(value, name).replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "");

  return { count, digits, quantity, tick, share: (ratio) => quantity(ratio * 100, PERCENT), duration: (ns) => quantity(ns, "ns") };
})();
