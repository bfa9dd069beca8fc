"use strict";
const main = document.querySelector("main"), unreached = document.querySelector("#unreached");
let reached = Date.now();
async function update() {
  try {
    const answer = await fetch("now", {cache: "no-store", signal: AbortSignal.timeout(8000)});
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    main.replaceChildren(...fresh.body.childNodes);
    document.title = main.querySelector("[data-title]").dataset.title;
    reached = Date.now();
    unreached.hidden = true;
  } catch (fault) {
    const seconds = Math.round((Date.now() - reached) / 1000);
    unreached.textContent = `No answer for ${seconds} s: the process has ended, or cannot be reached. This is what it said last.`;
    unreached.hidden = false;
  }
  setTimeout(update, 2000);
}
setTimeout(update, 2000);
