// The button at a piece of code copies it.
"use strict";
for (const button of document.querySelectorAll("button.copy")) {
  const said = button.textContent;
  const answer = (text) => {
    button.textContent = text;
    setTimeout(() => { button.textContent = said; }, 1500);
  };
  button.addEventListener("click", () => {
    const code = button.parentElement.querySelector("code");
    navigator.clipboard.writeText(code.textContent).then(() => answer(page.say("Copied")), () => {
      getSelection().selectAllChildren(code); // a page from a file may not write: Ctrl+C does
      answer(page.say("Press Ctrl+C"));
    });
  });
}
