"""A view, mounted by itself and painted as saving paints it."""

from typing import Any

SCRIPT = """async ({ painter, view, model, ready }) => {
  const names = ["paint", `views/${view}`, "api", "words", "state"];
  const found = await Promise.all(names.map((name) => import(`/web/${name}.js`)));
  const [paint, { default: shown }, api, { t }, state] = found;
  const { models } = await api.get("/api/models");
  const root = document.body.appendChild(document.createElement("div"));
  const entry = models.find((one) => one.id === model);
  const handle = shown.mount(root, { entry, entries: models, state, api, t });
  while (!root.querySelector(ready)) await new Promise((done) => setTimeout(done, 50));
  const made = new paint[painter]();
  handle.picture(made);
  handle.unmount();
  root.remove();
  return painter === "SvgPainter" ? made.toString() : `${made.w} ${made.h}`;
}"""


def painted(page: Any, painter: str, view: str, model: str, ready: str) -> str:
    """The SVG, or the width and height of the canvas; painted once `ready` is on the page."""
    about = {"painter": painter, "view": view, "model": model, "ready": ready}
    made: str = page.evaluate(SCRIPT, about)
    return made
