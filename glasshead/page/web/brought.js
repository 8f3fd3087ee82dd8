// What a page brings with it. One from a server brings nothing; one in a file brings the answers
// that it was saved with; one in a notebook says that a kernel answers.
//
//   {kind: "saved" | "notebook", views: ["look"], state: {layer: "1"}, kept,
//    answers: {"GET /api/models": {headers, json}}}

const node = document.getElementById("brought");

/** @type {Brought | null} */
export const brought = node ? JSON.parse(node.textContent) : null;
export const saved = brought?.kind === "saved";
