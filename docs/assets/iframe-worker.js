// Pages opened as files may have no workers; the theme's search is one. Here it runs in a hidden
// frame instead.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    #frame = document.createElement("iframe");
    /** @type {unknown[] | null} until the frame's script listens */
    #sent = [];
    /** @type {((event: MessageEvent) => void) | null} */
    onmessage = null;

    /** @param {string | URL} url */
    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#inside;
      addEventListener("message", ({ source, data }) => {
        if (source === inside) this.#hand(data);
      });
      const page = inside.document;
      page.open();
      page.write(`<script>
        // What a worker has by other means: its own postMessage answers, importScripts loads
        // before it goes on.
        const ask = parent.postMessage.bind(parent);
        window.postMessage = (data) => ask(data, "*");
        window.importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((done) => {
          const script = document.createElement("script");
          script.src = url; script.onload = done; script.onerror = done;
          document.head.append(script);
        })));
      </script><script src="${url}"></script>`);
      page.close();
      this.#frame.onload = () => this.#ready();
    }

    get #inside() {
      return /** @type {Window} */ (this.#frame.contentWindow);
    }

    #ready() {
      const early = this.#sent ?? [];
      this.#sent = null;
      for (const data of early) this.postMessage(data);
    }

    /** @param {unknown} data */
    #hand(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }

    /** @param {unknown} data */
    postMessage(data) {
      if (this.#sent) this.#sent.push(data);
      else this.#inside.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  }
  window.Worker = /** @type {any} */ (FrameWorker);
}
