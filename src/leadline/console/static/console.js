// Live parts of a page: each element with data-live is fetched again with its page, every two seconds, while the page is
// visible and Live is on. Without this file the pages are complete; they just do not renew themselves.
"use strict";

const INTERVAL_MS = 2000;
const toggle = document.getElementById("live");
const updated = document.getElementById("updated");
let isOn = true;
let underWay = false;

function isInUse(element) {
  const focused = document.activeElement;
  if (element.contains(focused) && focused.matches("input, select, textarea, button")) return true;
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode);
}

function replace(element, fresh) {
  if (element.innerHTML === fresh.innerHTML || isInUse(element)) return;
  const open = new Set([...element.querySelectorAll("details[open][id]")].map((details) => details.id));
  const boxes = [...element.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const place = focused && focused.closest("details[id]")?.id;
  const href = focused && focused.getAttribute("href");
  element.replaceChildren(...fresh.childNodes);
  for (const details of element.querySelectorAll("details[id]")) details.open = open.has(details.id);
  element.querySelectorAll(".scroll").forEach((box, n) => { box.scrollLeft = boxes[n] || 0; });
  const again = place ? document.getElementById(place)?.querySelector("summary")
    : href && [...element.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === href);
  if (again) again.focus({ preventScroll: true });
}

async function renew() {
  if (!isOn || document.hidden || underWay) return;
  underWay = true;
  try {
    const response = await fetch(location.href, { credentials: "same-origin" });
    if (!response.ok) throw new Error(response.statusText);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const element of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(element.id);
      if (fresh) replace(element, fresh);
    }
    updated.textContent = ` · as of ${new Date().toLocaleTimeString()}`;
    document.body.classList.remove("stale");
  } catch {
    updated.textContent = " · the console or the cluster does not answer; trying again";
    document.body.classList.add("stale");
  } finally {
    underWay = false;
  }
}

if (document.querySelector("[data-live]")) {
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    isOn = !isOn;
    toggle.setAttribute("aria-pressed", String(isOn));
    toggle.querySelector(".label").textContent = isOn ? "Live" : "Paused";
    renew();
  });
  setInterval(renew, INTERVAL_MS);
}
