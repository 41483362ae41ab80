// What the other scripts of the page share: unpacking what the page carries deflated, and the libraries in it.
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
  // A text in the language of the page; {words} in it are replaced.
  const say = (text, values = {}) => (texts[text] ?? text).replace(/\{(\w+)\}/g, (word, name) => values[name] ?? word);

  return {
    say,
    shapes: {}, // of charts that have a script of their own: kind → (figure, state, tools) => [traces, layout]
    unpacked,
    dark: window.matchMedia("(prefers-color-scheme: dark)"),
    colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
    // A classic script: it leaves Plotly in the window.
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
    // A module: its default export is the class.
    tables: once(async () => {
      const sheet = document.createElement("style");
      sheet.textContent = new TextDecoder().decode(await unpacked(document.getElementById("library-table-style").textContent));
      document.head.prepend(sheet); // the page's own rules win
      return (await import(await address("library-tables", "text/javascript"))).default;
    }),
    // Runs a function for each element when it is about to be seen.
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
