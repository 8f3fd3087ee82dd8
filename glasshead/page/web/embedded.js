// Data embedded in the page. A page from a server has none; a saved page has the answers that it
// shows; in a notebook it says that the kernel answers; a living page has the model itself.
//
//   {kind: "saved" | "notebook" | "living", views: ["look"], state: {layer: "1"}, kept,
//    answers: {"GET /api/models": {headers, json}}, living: what engine/host.js reads}

const node = document.getElementById("embedded");

/** @type {EmbeddedData | null} */
export const embedded = node ? JSON.parse(node.textContent) : null;
export const saved = embedded?.kind === "saved";
export const living = embedded?.kind === "living";
