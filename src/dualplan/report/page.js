"use strict";
// The theme, and the map of a policy that can be turned. Decisions were tabulated when the page was made.
(() => {
  const root = document.documentElement;
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches);
  let redraw = () => {};

  function showTheme() {
    toggle.textContent = isDark() ? "Light theme" : "Dark theme";
    redraw();
  }
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  wantsDark.addEventListener("change", showTheme);
  matchMedia("print").addEventListener("change", () => redraw());
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
  showTheme();

  const source = document.getElementById("map-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const byId = (id) => document.getElementById(id);

  // -- the tables --------------------------------------------------------------------------------------------------

  // runs of (number, length), 16 bits each, the low byte first
  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const runs = new Uint16Array(bytes.length / 2);
    runs.forEach((_, k) => (runs[k] = bytes[2 * k] | (bytes[2 * k + 1] << 8)));
    let size = 0;
    for (let k = 1; k < runs.length; k += 2) size += runs[k];
    const numbers = new Uint16Array(size);
    for (let k = 0, at = 0; k < runs.length; k += 2) {
      numbers.fill(runs[k], at, at + runs[k + 1]);
      at += runs[k + 1];
    }
    return numbers;
  }
  const axes = data.axes;
  const layers = data.layers.map((layer) => ({ ...layer, numbers: unpack(layer.cells) }));
  const may = { ...data.may, numbers: unpack(data.may.cells) };
  const others = (pair) => axes.map((_, k) => k).filter((k) => !pair.includes(k));
  const length = (k) => (k < 0 ? 1 : axes[k].values.length);
  const offsets = [0];
  for (const pair of data.pairs) {
    const levels = others(pair).reduce((product, k) => product * axes[k].levels.length, 1);
    offsets.push(offsets[offsets.length - 1] + levels * length(pair[0]) * length(pair[1]));
  }

  // -- what is shown -----------------------------------------------------------------------------------------------

  const events = axes.findIndex((axis) => !axis.along);
  const deciders = data.deciders
    .map((decider, s) => ({ ...decider, event: s + 1 }))
    .filter((decider) => events < 0 || axes[events].values.includes(decider.event));
  const view = {
    across: data.begin.across,
    up: data.begin.up,
    decider: Math.max(0, deciders.findIndex((d) => d.event === data.begin.decider + 1)),
    other: 1,
    show: layers.length > 1 ? "both" : "found",
    levels: axes.map((axis) => axis.start),
    cursor: { x: 0, y: 0 },
    hover: null,
  };

  // where the cells of the present slice begin, and how far it is to the next cell across and up
  function slice() {
    const p = data.pairs.findIndex((pair) => pair.includes(view.across) && pair.includes(view.up));
    const [i, j] = data.pairs[p];
    if (events >= 0) view.levels[events] = axes[events].values.indexOf(deciders[view.decider].event);
    const combination = others([i, j]).reduce((sum, k) => sum * axes[k].levels.length + view.levels[k], 0);
    const begin = offsets[p] + combination * length(i) * length(j);
    return view.across === i ? { begin, x: 1, y: length(i) } : { begin, x: length(i), y: 1 };
  }
  function stateAt(x, y) {
    const state = data.fixed.slice();
    axes.forEach((axis, k) => (state[axis.coordinate] = axis.values[axis.levels[view.levels[k]]]));
    state[axes[view.across].coordinate] = axes[view.across].values[x];
    if (view.up >= 0) state[axes[view.up].coordinate] = axes[view.up].values[y];
    return state;
  }
  // the choices of the one who decides, in percents; empty where the state cannot occur
  function choices(layer, cell) {
    const of = deciders[view.decider].of;
    const sums = new Map();
    for (const [action, percent] of layer.decisions[layer.numbers[cell]]) {
      sums.set(of[action], (sums.get(of[action]) || 0) + percent);
    }
    return sums;
  }
  // whether a choice serves nobody: its class is empty, or it is to idle
  function idle(choice, state) {
    const classes = deciders[view.decider].classes;
    return classes !== null && (classes[choice] < 0 || state[classes[choice]] === 0);
  }
  const allIdle = (sums, state) => [...sums.keys()].every((choice) => idle(choice, state));
  function differ(a, b, state) {
    if (a.size === 0 || b.size === 0 || (allIdle(a, state) && allIdle(b, state))) return false;
    return a.size !== b.size || [...a].some(([choice, percent]) => b.get(choice) !== percent);
  }
  const shown = () => (view.show === "found" ? [0] : view.show === "other" ? [view.other] : [0, view.other]);

  // -- colours -----------------------------------------------------------------------------------------------------

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const known = new Map();
  function rgb(name) {
    if (!known.has(name)) {
      probe.style.color = `var(--${name})`;
      known.set(name, getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number));
    }
    return known.get(name);
  }
  // beyond the palette, even steps from dark blue over grey to yellow, which colour-blind readers can follow
  const SCALE = [[0, 42, 102], [83, 88, 108], [125, 124, 120], [176, 164, 110], [253, 231, 74]];
  // the last choice that any policy makes: the scale ends there
  const lastOf = ({ of }) => Math.max(1, ...layers.flatMap((layer) => layer.decisions.flat().map(([action]) => of[action])));
  deciders.forEach((decider) => (decider.last = lastOf(decider)));
  function colourOf(choice) {
    const { labels, last } = deciders[view.decider];
    if (labels.length <= data.palette) return rgb(`c${choice}`);
    const at = (Math.min(choice, last) / last) * (SCALE.length - 1);
    const k = Math.min(Math.floor(at), SCALE.length - 2);
    return mix(SCALE[k], SCALE[k + 1], at - k);
  }
  const mix = (a, b, share) => a.map((v, i) => v + (b[i] - v) * share);
  const css = (colour) => `rgb(${colour.map(Math.round).join(",")})`;
  function cellColour(sums, state) {
    let total = 0;
    let colour = [0, 0, 0];
    for (const [choice, percent] of sums) {
      const own = idle(choice, state) ? mix(rgb("paper"), colourOf(choice), 0.28) : colourOf(choice);
      colour = colour.map((v, i) => v + percent * own[i]);
      total += percent;
    }
    return colour.map((v) => v / total);
  }

  // -- drawing -----------------------------------------------------------------------------------------------------

  const canvases = [byId("map-0"), byId("map-1")];
  const MARGIN = { left: 44, bottom: 40, top: 6, right: 8 };
  function layout(canvas) {
    const width = canvas.clientWidth;
    const [nx, ny] = [length(view.across), length(view.up)];
    const inner = width - MARGIN.left - MARGIN.right;
    const side = Math.min(inner / nx, view.up < 0 ? 48 : 420 / ny);
    return { nx, ny, cw: inner / nx, ch: side, height: side * ny + MARGIN.top + MARGIN.bottom, width };
  }
  function draw() {
    known.clear();
    legend();
    const { begin, x: dx, y: dy } = slice();
    const [first, second] = [layers[0], layers[view.other]];
    let differing = 0;
    // first who is there, since that decides how wide they are
    canvases.forEach((canvas, place) => (canvas.closest(".map").hidden = shown()[place] === undefined));
    canvases.forEach((canvas, place) => {
      const which = shown()[place];
      if (which === undefined) return;
      const box = layout(canvas);
      const pen = prepared(canvas, box);
      for (let y = 0; y < box.ny; y++) {
        for (let x = 0; x < box.nx; x++) {
          const cell = begin + x * dx + y * dy;
          const state = stateAt(x, y);
          const sums = choices(layers[which], cell);
          const [left, top] = corner(box, x, y);
          if (sums.size > 0) {
            pen.fillStyle = css(cellColour(sums, state));
            pen.fillRect(...inside(box, left, top));
          }
          if (second && differ(choices(first, cell), choices(second, cell), state)) {
            differing += place === 0 ? 1 : 0;
            if (view.show === "both") mark(pen, box, left, top);
          }
        }
      }
      ticks(pen, box);
      outline(pen, box);
      canvas.setAttribute("aria-label", `${title(which)}, ${axisName(view.across)} across` +
        (view.up < 0 ? "" : `, ${axisName(view.up)} up`) + ". Arrow keys move the cursor.");
      byId(`map-title-${place}`).textContent = title(which);
    });
    byId("differing").textContent = !second || view.show !== "both" ? "" :
      `They differ in ${differing} of the ${length(view.across) * length(view.up)} cells of this map.`;
    say();
  }
  redraw = draw;
  function prepared(canvas, box) {
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${box.height}px`;
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    return pen;
  }
  const corner = (box, x, y) => [MARGIN.left + x * box.cw, MARGIN.top + (box.ny - 1 - y) * box.ch];
  // whole pixels, with a hair of paper between cells that are large enough for it
  function inside(box, left, top) {
    const gap = Math.min(box.cw, box.ch) > 9 ? 1 : 0;
    const [x, y] = [Math.round(left), Math.round(top)];
    return [x, y, Math.round(left + box.cw) - x - gap, Math.round(top + box.ch) - y - gap];
  }
  function mark(pen, box, left, top) {
    const size = Math.max(2, Math.min(box.cw, box.ch) * 0.3);
    pen.fillStyle = css(rgb("ink"));
    pen.strokeStyle = css(rgb("paper"));
    pen.lineWidth = 1;
    const at = [left + (box.cw - size) / 2, top + (box.ch - size) / 2, size, size];
    pen.fillRect(...at);
    pen.strokeRect(...at);
  }
  function outline(pen, box) {
    const { x, y } = view.cursor;
    const [left, top] = corner(box, x, y);
    pen.strokeStyle = css(rgb("paper"));
    pen.lineWidth = 4;
    pen.strokeRect(left, top, box.cw, box.ch);
    pen.strokeStyle = css(rgb("focus"));
    pen.lineWidth = 2;
    pen.strokeRect(left, top, box.cw, box.ch);
  }
  function ticks(pen, box) {
    pen.fillStyle = css(rgb("muted"));
    pen.font = "12px system-ui, sans-serif";
    const bottom = MARGIN.top + box.ny * box.ch;
    const every = (count, room, need) => Math.max(1, Math.ceil((count * need) / room));
    const stepX = every(box.nx, box.nx * box.cw, 30);
    const stepY = every(box.ny, box.ny * box.ch, 18);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (let x = 0; x < box.nx; x += stepX) pen.fillText(word(view.across, x), MARGIN.left + (x + 0.5) * box.cw, bottom + 5);
    pen.fillStyle = css(rgb("ink"));
    pen.fillText(axisName(view.across), MARGIN.left + (box.nx * box.cw) / 2, bottom + 22);
    if (view.up < 0) return;
    pen.save();
    pen.translate(11, MARGIN.top + (box.ny * box.ch) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(axisName(view.up), 0, 0);
    pen.restore();
    pen.fillStyle = css(rgb("muted"));
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (let y = 0; y < box.ny; y += stepY) {
      pen.fillText(word(view.up, y), MARGIN.left - 6, corner(box, 0, y)[1] + box.ch / 2);
    }
  }

  // -- words -------------------------------------------------------------------------------------------------------

  const title = (which) => (which === 0 ? `found: ${layers[0].name}` : layers[which].name);
  const axisName = (k) => (data.classes.includes(axes[k].name) ? `queue ${axes[k].name}` : axes[k].name);
  const word = (k, place) => (axes[k].names ? axes[k].names[place] : String(axes[k].values[place]));
  function spoken(sums, state) {
    if (sums.size === 0) return "cannot occur";
    const { labels, classes } = deciders[view.decider];
    const verb = classes === null && data.classes.length === 0 ? "" : "serves ";
    return [...sums].sort((a, b) => b[1] - a[1]).map(([choice, percent]) => {
      const text = verb + labels[choice] + (verb && idle(choice, state) && labels[choice] !== "nobody" ? " (nobody there)" : "");
      return sums.size > 1 ? `${text} (${percent}%)` : text;
    }).join(" or ");
  }
  function say() {
    const { x, y } = view.hover || view.cursor;
    const { begin, x: dx, y: dy } = slice();
    const cell = begin + x * dx + y * dy;
    const state = stateAt(x, y);
    const place = axisName(view.across) + " = " + word(view.across, x) +
      (view.up < 0 ? "" : `, ${axisName(view.up)} = ${word(view.up, y)}`);
    const who = deciders[view.decider].name;
    const parts = shown().map((which) => `${layers[which].name} ${who ? `at ${who} ` : ""}${who ? "" : "chooses "}` +
      spoken(choices(layers[which], cell), state));
    const allowed = may.decisions[may.numbers[cell]];
    const some = allowed.length > 0 && allowed.length < data.actions.length;
    const names = allowed.slice(0, 8).map(([action]) => data.actions[action]).join(", ");
    const apart = view.show === "both" && layers[view.other] &&
      differ(choices(layers[0], cell), choices(layers[view.other], cell), state);
    byId("readout").textContent = allowed.length === 0 ? `${place}: this state cannot occur.` :
      `${place}: ${parts.join("; ")}.${apart ? " They differ." : ""}` +
      (some ? ` Allowed here: ${names}${allowed.length > 8 ? ", …" : ""}.` : "");
    Object.assign(byId("readout").dataset, {
      state: state.join(","),
      actions: JSON.stringify(shown().map((which) => layers[which].decisions[layers[which].numbers[cell]])),
    });
  }
  function legend() {
    const { labels, last } = deciders[view.decider];
    const list = byId("legend");
    list.replaceChildren();
    const item = (colour, text, name) => {
      const li = document.createElement("li");
      const patch = document.createElement("span");
      patch.style.background = colour;
      if (name) patch.className = name;
      li.append(patch, text);
      list.append(li);
    };
    const step = labels.length > data.palette ? Math.ceil(last / 10) : 1;
    labels.forEach((label, k) => {
      if (labels.length > data.palette && k > last) return;
      if (k % step === 0 || k === last) item(css(colourOf(k)), data.classes.length ? `serves ${label}` : label);
    });
    if (deciders[view.decider].classes) item(css(mix(rgb("paper"), colourOf(0), 0.28)), "pale: nobody there to serve");
    if (view.show === "both") item("transparent", "the two differ", "differs");
    if (may.decisions.length > 1 && may.numbers.includes(0)) item("transparent", "empty: cannot occur");
  }

  // -- controls ----------------------------------------------------------------------------------------------------

  function fill(select, options, value) {
    select.replaceChildren(...options.map(([key, text]) => new Option(text, key, false, String(key) === String(value))));
  }
  function makeControls() {
    const along = axes.map((_, k) => [k, null]).filter(([k]) => axes[k].along).map(([k]) => [k, axisName(k)]);
    fill(byId("across"), along, view.across);
    fill(byId("up"), along, view.up);
    fill(byId("decider"), deciders.map((d, k) => [k, d.name]), view.decider);
    fill(byId("other"), layers.slice(1).map((layer, k) => [k + 1, layer.name]), view.other);
    byId("up").parentElement.hidden = view.up < 0;
    byId("across").parentElement.hidden = along.length < 2;
    byId("decider").parentElement.hidden = deciders.length < 2;
    byId("other").parentElement.hidden = byId("show").parentElement.hidden = layers.length < 2;
    byId("show").value = view.show;
    levels();
  }
  // a slider for every coordinate that is not an axis now
  function levels() {
    const box = byId("levels");
    box.replaceChildren();
    axes.forEach((axis, k) => {
      if (k === view.across || k === view.up || !axis.along || axis.levels.length < 2) return;
      const label = document.createElement("label");
      const output = document.createElement("b");
      const slider = document.createElement("input");
      const show = () => {
        output.textContent = word(k, axis.levels[view.levels[k]]);
        slider.setAttribute("aria-valuetext", `${axisName(k)} = ${output.textContent}`);
      };
      Object.assign(slider, { type: "range", min: 0, max: axis.levels.length - 1, id: `level-${k}` });
      slider.value = view.levels[k];
      slider.addEventListener("input", () => {
        view.levels[k] = Number(slider.value);
        show();
        draw();
      });
      show();
      label.append(axisName(k), " ", output, slider);
      box.append(label);
    });
  }
  function changed() {
    view.cursor.x = Math.min(view.cursor.x, length(view.across) - 1);
    view.cursor.y = Math.min(view.cursor.y, length(view.up) - 1);
    view.hover = null;
    makeControls();
    draw();
  }
  function chooseAxis(which, other) {
    return (event) => {
      const chosen = Number(event.target.value);
      if (chosen === view[other]) view[other] = view[which];
      view[which] = chosen;
      changed();
    };
  }
  byId("across").addEventListener("change", chooseAxis("across", "up"));
  byId("up").addEventListener("change", chooseAxis("up", "across"));
  for (const name of ["decider", "other"]) {
    byId(name).addEventListener("change", (event) => {
      view[name] = Number(event.target.value);
      changed();
    });
  }
  byId("show").addEventListener("change", (event) => {
    view.show = event.target.value;
    changed();
  });

  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  function move(event) {
    const { x, y } = view.cursor;
    const last = { x: length(view.across) - 1, y: length(view.up) - 1 };
    if (event.key in MOVES) {
      const [dx, dy] = MOVES[event.key];
      view.cursor = { x: Math.min(Math.max(x + dx, 0), last.x), y: Math.min(Math.max(y + dy, 0), last.y) };
    } else if (event.key === "Home") view.cursor = { x: 0, y: 0 };
    else if (event.key === "End") view.cursor = last;
    else return;
    event.preventDefault();
    view.hover = null;
    draw();
  }
  function cellUnder(canvas, event) {
    const box = layout(canvas);
    const area = canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - area.left - MARGIN.left) / box.cw);
    const y = box.ny - 1 - Math.floor((event.clientY - area.top - MARGIN.top) / box.ch);
    return x >= 0 && x < box.nx && y >= 0 && y < box.ny ? { x, y } : null;
  }
  for (const canvas of canvases) {
    canvas.addEventListener("keydown", move);
    canvas.addEventListener("pointermove", (event) => {
      view.hover = cellUnder(canvas, event);
      say();
    });
    canvas.addEventListener("pointerleave", () => {
      view.hover = null;
      say();
    });
    canvas.addEventListener("pointerdown", (event) => {
      const cell = cellUnder(canvas, event);
      if (!cell) return;
      view.cursor = cell;
      draw();
    });
  }
  new ResizeObserver(draw).observe(byId("maps"));
  byId("map").hidden = false;
  changed();
})();
