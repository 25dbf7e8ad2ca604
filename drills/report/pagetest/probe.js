(() => {
  const LEAST = 4.5; // WCAG 2.2, success criterion 1.4.3, level AA for text of normal size

  const parse = c => {
    const n = c.match(/[\d.]+/g).map(Number);
    return { r: n[0], g: n[1], b: n[2], a: n.length > 3 ? n[3] : 1 };
  };
  const over = (top, under) => ({
    r: top.r * top.a + under.r * (1 - top.a), g: top.g * top.a + under.g * (1 - top.a), b: top.b * top.a + under.b * (1 - top.a), a: 1,
  });
  const luminance = c => {
    const lin = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * lin(c.r) + 0.7152 * lin(c.g) + 0.0722 * lin(c.b);
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  // What lies behind an element: every translucent background up to the first solid one.
  const behind = el => {
    const layers = [];
    for (let e = el; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.a > 0) layers.push(c);
      if (c.a === 1) break;
    }
    return layers.reduceRight((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const opacity = el => {
    let o = 1;
    for (let e = el; e; e = e.parentElement) o *= Number(getComputedStyle(e).opacity);
    return o;
  };

  const faint = [];
  let texts = 0;
  for (const el of document.body.querySelectorAll("*")) {
    const own = [...el.childNodes].filter(n => n.nodeType === Node.TEXT_NODE).map(n => n.data.trim()).join(" ").trim();
    if (!own || !el.getClientRects().length || ["TITLE", "DESC", "STYLE"].includes(el.tagName.toUpperCase())) continue;
    texts++;
    const style = getComputedStyle(el);
    const inPicture = el.closest("svg") !== null;
    const back = behind(inPicture ? el.closest("svg") : el);
    const ink = parse(inPicture ? style.fill : style.color);
    ink.a *= opacity(el);
    const r = ratio(over(ink, back), back);
    if (r < LEAST) faint.push(`${own.slice(0, 40)} (${r.toFixed(2)})`);
  }

  const struck = [];
  const drawings = [...document.querySelectorAll("svg")];
  for (const svg of drawings) {
    const boxes = [...svg.querySelectorAll("text")].map(t => ({ text: t.textContent.trim(), box: t.getBoundingClientRect() }));
    boxes.forEach((p, i) => boxes.slice(i + 1).forEach(q => {
      const w = Math.min(p.box.right, q.box.right) - Math.max(p.box.left, q.box.left);
      const h = Math.min(p.box.bottom, q.box.bottom) - Math.max(p.box.top, q.box.top);
      // Boxes include the room above and below the letters; lines set close overlap by that alone.
      if (w > 1 && h > Math.min(p.box.height, q.box.height) / 2) struck.push(`${p.text} | ${q.text}`);
    }));
  }
  const visible = s => { const r = s.getBoundingClientRect(); return r.width > 0 && r.height > 0 && s.checkVisibility({ opacityProperty: true, visibilityProperty: true }); };

  return {
    scripts: document.scripts.length,
    pageWidth: document.documentElement.scrollWidth,
    screenWidth: document.documentElement.clientWidth,
    faint, texts, struck,
    drawings: drawings.length,
    pictures: drawings.filter(visible).length,
  };
})()
