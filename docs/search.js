// Adds to the site's search: "No results" if there are none, and decisions after all other pages.
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
  ol:has(> li > a) { display: flex; flex-direction: column; }
  li:has(> a[href*="/decisions/"]) { order: 1; }
  ol[data-none]::after { content: "No results"; display: block; padding: 12px 18px; opacity: 0.7; }
`);

function extend(root) {
  root.adoptedStyleSheets.push(sheet);
  const update = () => {
    const [input, list] = [root.querySelector("input"), root.querySelector("ol")];
    list?.toggleAttribute("data-none", Boolean(input?.value.trim()) && !list.children.length);
  };
  root.addEventListener("input", () => setTimeout(update, 500)); // results are computed by a worker
  new MutationObserver(update).observe(root, { childList: true, subtree: true });
}

new MutationObserver(() => {
  for (const { shadowRoot } of document.body.children)
    if (shadowRoot && !shadowRoot.adoptedStyleSheets.includes(sheet)) extend(shadowRoot);
}).observe(document.body, { childList: true });
