// Hands on the map: drag, wheel, pinch, tap, keys.

import { LEFT, TOP } from "./atlas_rulers.js";

const STEP = 0.2; // of what is in sight, for an arrow key
const NOTCH = 0.0018; // of a wheel
const CLOSE = 6; // pixels that a finger may move and still tap

/** @typedef {{row: number, col: number} | null} At a weight, or none */

/**
 * @param {import("./atlas_map.js").AtlasMap} map
 * @param {{onpoint: (at: At, event: PointerEvent) => void, onpick: (at: At) => void}} on
 */
export function gestures(map, { onpoint, onpick }) {
  const { canvas, mini } = map;
  /** @type {Map<number, [x: number, y: number]>} */
  const fingers = new Map();
  let moved = 0;
  let spread = { distance: 1, x: 0, y: 0 };

  /** @param {MouseEvent} event @returns {[x: number, y: number]} */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  /** @param {number} cx @param {number} cy */
  const weight = (cx, cy) => {
    const { x, y } = map.at(cx, cy);
    const row = Math.floor(y);
    const col = Math.floor(x);
    const inside =
      cx > LEFT && cy > TOP && row >= 0 && col >= 0 && row < map.layer.T && col < map.layer.S;
    return inside ? { row, col } : null;
  };
  const apart = () => {
    const [a, b] = [...fingers.values()];
    return {
      distance: Math.hypot(a[0] - b[0], a[1] - b[1]) || 1,
      x: (a[0] + b[0]) / 2,
      y: (a[1] + b[1]) / 2,
    };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    if (fingers.size === 1) moved = 0;
    if (fingers.size === 2) spread = apart();
    canvas.classList.add("held");
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const before = fingers.get(event.pointerId);
    if (!before) return onpoint(event.pointerType === "mouse" ? weight(x, y) : null, event);
    fingers.set(event.pointerId, [x, y]);
    moved += Math.hypot(x - before[0], y - before[1]);
    const { px } = map.camera;
    if (fingers.size === 1) {
      if (moved > CLOSE)
        map.move({
          x: map.camera.x - (x - before[0]) / px, y: map.camera.y - (y - before[1]) / px,
        });
    } else if (fingers.size === 2) {
      const now = apart();
      map.move({
        x: map.camera.x - (now.x - spread.x) / px, y: map.camera.y - (now.y - spread.y) / px,
      });
      map.zoom(now.distance / spread.distance, now.x, now.y);
      spread = now;
    }
    onpoint(null, event);
  });
  /** @param {PointerEvent} event */
  const up = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (fingers.size === 1) moved = CLOSE + 1; // what is left of a pinch is no tap
    if (!fingers.size) canvas.classList.remove("held");
    if (event.type === "pointerup" && moved <= CLOSE && !fingers.size)
      onpick(weight(...place(event)));
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", (event) => onpoint(null, event));
  canvas.addEventListener("dblclick", (event) =>
    map.zoom(event.shiftKey ? 0.25 : 4, ...place(event)),
  );
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 30 : 1;
      if (event.shiftKey) {
        const { px } = map.camera;
        map.move({ x: map.camera.x + (lines * (event.deltaX || event.deltaY)) / px });
      } else {
        // A pinch on a touchpad comes as a wheel with ctrl, in smaller steps.
        map.zoom(
          Math.exp(-lines * event.deltaY * (event.ctrlKey ? 6 * NOTCH : NOTCH)),
          ...place(event),
        );
      }
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view, camera } = map;
    const far = event.shiftKey ? 5 : 1;
    const dx = Math.max(1, (view.c1 - view.c0) * STEP) * far;
    const dy = Math.max(1, (view.r1 - view.r0) * STEP) * far;
    /** @type {Record<string, () => void>} */
    const moves = {
      ArrowLeft: () => map.move({ x: camera.x - dx }),
      ArrowRight: () => map.move({ x: camera.x + dx }),
      ArrowUp: () => map.move({ y: camera.y - dy }),
      ArrowDown: () => map.move({ y: camera.y + dy }),
      PageUp: () => map.move({ y: camera.y - 4 * dy }),
      PageDown: () => map.move({ y: camera.y + 4 * dy }),
      "+": () => map.zoom(2),
      "=": () => map.zoom(2),
      "-": () => map.zoom(0.5),
      _: () => map.zoom(0.5),
      0: () => map.home(),
      Home: () => map.home(),
      d: () => map.move({ x: camera.y + map.layer.S - map.layer.T }),
      Enter: () => onpick(weight(LEFT + map.inner[0] / 2, TOP + map.inner[1] / 2)),
      Escape: () => onpick(null),
    };
    const act = moves[event.key] ?? moves[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  });

  // The small map: what is pressed is moved to.
  /** @param {PointerEvent} event */
  const jump = (event) => {
    const box = mini.getBoundingClientRect();
    const share = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    map.move({ x: share[0] * map.layer.S, y: share[1] * map.layer.T });
  };
  mini.addEventListener("pointerdown", (event) => {
    mini.setPointerCapture(event.pointerId);
    jump(event);
  });
  mini.addEventListener(
    "pointermove",
    (event) => mini.hasPointerCapture(event.pointerId) && jump(event),
  );
}
