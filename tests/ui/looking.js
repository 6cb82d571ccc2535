// What is wrong with the page as it stands: texts that are cut off, and things that lie over others.
({
  cut: () => {
    const found = [];
    const scrolls = (element) => { for (let e = element; e; e = e.parentElement) { const s = getComputedStyle(e); if (/auto|scroll/.test(s.overflowX + s.overflowY) && (e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)) return true; } return false; };
    for (const element of document.querySelectorAll("body *")) {
      if (!element.checkVisibility?.() || element.closest("svg, .unseen, .uplot, [data-shortened]") || !element.childNodes.length) continue;
      if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
      const range = document.createRange();
      range.selectNodeContents(element);
      const text = range.getBoundingClientRect();
      let left = -1, right = document.documentElement.clientWidth + 1;
      const inScroll = scrolls(element);
      for (let e = element; e && !inScroll; e = e.parentElement) {
        const style = getComputedStyle(e);
        if (style.overflowX !== "visible") { const box = e.getBoundingClientRect(); left = Math.max(left, box.left - 1); right = Math.min(right, box.right + 1); }
      }
      if (!inScroll && (text.left < left || text.right > right)) found.push(`${element.tagName}.${element.className}: ${element.textContent.trim().slice(0, 40)}`);
    }
    if (document.documentElement.scrollWidth > document.documentElement.clientWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
    return found;
  },
  over: () => {
    const found = [], cards = [...document.querySelectorAll(".card, .sum, .head")].filter((e) => e.checkVisibility()).map((e) => [e, e.getBoundingClientRect()]);
    for (const [a, ra] of cards) for (const [b, rb] of cards) {
      if (a === b || a.contains(b) || b.contains(a)) continue;
      if (ra.left < rb.right - 1 && rb.left < ra.right - 1 && ra.top < rb.bottom - 1 && rb.top < ra.bottom - 1) found.push(`${a.className} over ${b.className}`);
    }
    for (const parent of document.querySelectorAll(".head, .siterow .who, .card > header, .operate")) {
      const children = [...parent.children].filter((e) => e.checkVisibility() && !e.classList.contains("push")).map((e) => [e, e.getBoundingClientRect()]);
      children.forEach(([a, ra], i) => children.slice(i + 1).forEach(([b, rb]) => {
        if (ra.left < rb.right - 1 && rb.left < ra.right - 1 && ra.top < rb.bottom - 1 && rb.top < ra.bottom - 1) found.push(`${a.textContent} over ${b.textContent}`);
      }));
    }
    return found;
  },
})
