// Functions for all scripts of the page: decompression of data, libraries and translated texts.
"use strict";
const page = (() => {
  const decoded = (text) => {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // browsers since 2025
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  };
  const unpacked = async (text) => {
    const bytes = decoded(text);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
  };
  const address = async (id, type) =>
    URL.createObjectURL(new Blob([await unpacked(document.getElementById(id).textContent)], { type }));
  const once = (make) => {
    let made = null;
    return () => (made ??= make());
  };

  const texts = JSON.parse(document.getElementById("texts").textContent);
  // Returns a text in the language of the page, with the {placeholders} replaced by values.
  const say = (text, values = {}) => (texts[text] ?? text).replace(/\{(\w+)\}/g, (word, name) => values[name] ?? word);

  const text = (buffer) => new TextDecoder().decode(buffer);
  const made = (tag, attributes = {}, ...inside) => {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...inside);
    return element;
  };

  return {
    say,
    once,
    text,
    made, // creates an element
    shapes: {}, // kind of chart → (figure, state, tools) => [traces, layout]
    unpacked,
    narrow: window.matchMedia("(max-width: 52rem)"), // as in the style sheet
    dark: window.matchMedia("(prefers-color-scheme: dark)"),
    colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
    // Loads plotly, a classic script that sets window.Plotly.
    plotting: once(async () => {
      const script = document.createElement("script");
      script.src = await address("library-plotting", "text/javascript");
      await new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = () => reject(new Error("plotly cannot be loaded"));
        document.head.append(script);
      });
      return window.Plotly;
    }),
    // Loads DataTables, a module whose default export is the class.
    tables: once(async () => {
      const sheet = document.createElement("style");
      sheet.textContent = text(await unpacked(document.getElementById("library-table-style").textContent));
      document.head.prepend(sheet); // the style sheet of the page comes later and takes precedence
      return (await import(await address("library-tables", "text/javascript"))).default;
    }),
    // Runs a function for each element when the element is about to become visible.
    whenSeen: (elements, run) => {
      const watch = new IntersectionObserver((seen) => {
        for (const { target, isIntersecting } of seen) {
          if (!isIntersecting) continue;
          watch.unobserve(target);
          run(target);
        }
      }, { rootMargin: "400px" });
      for (const one of elements) watch.observe(one);
    },
  };
})();
