// The copy buttons of code blocks.
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
      getSelection().selectAllChildren(code); // a page opened from a file may not write to the clipboard
      answer(page.say("Press Ctrl+C"));
    });
  });
}
