// The widget of a notebook: a frame with the page, and messages between it and the kernel.

/** What a widget of anywidget knows of its kernel.
 * @typedef {{
 *   get(name: string): any, send(content: object): void,
 *   on(event: string, fn: Answered): void, off(event: string, fn: Answered): void,
 * }} Model
 * @typedef {(told: {frame: string}, buffers: DataView[]) => void} Answered
 */

export default {
  /** @param {{model: Model, el: HTMLElement}} widget */
  render({ model, el }) {
    const me = Math.random().toString(36).slice(2); // an output can be shown in two places
    const frame = document.createElement("iframe");
    frame.setAttribute("sandbox", "allow-scripts allow-downloads");
    frame.title = "Glasshead";
    Object.assign(frame.style, {
      width: "100%", height: `${model.get("height")}px`, border: "0", borderRadius: "8px",
    });

    /** @param {MessageEvent} event */
    function asked({ source, data }) {
      if (source !== frame.contentWindow || typeof data?.glasshead !== "number") return;
      const { glasshead, method, path, body } = data;
      model.send({ frame: me, glasshead, method, path, body });
    }

    /** @type {Answered} */
    function answered(told, buffers) {
      if (told.frame !== me) return;
      const [view] = buffers;
      const body = view.buffer
        ? view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)
        : view;
      frame.contentWindow?.postMessage({ ...told, body }, "*");
    }

    addEventListener("message", asked);
    model.on("msg:custom", answered);
    frame.srcdoc = model.get("html");
    el.append(frame);
    return () => {
      removeEventListener("message", asked);
      model.off("msg:custom", answered);
    };
  },
};
