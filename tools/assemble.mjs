// Writes glasshead/page/web/engine/products_wasm.js from tools/products.wat: npm run wasm
//
// With --check it writes nothing and fails if the file is not what it would write.

import { Buffer } from "node:buffer";
import { readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import wabt from "wabt";

const folder = new URL("../glasshead/page/web/engine/", import.meta.url);
const source = new URL("products.wat", import.meta.url);
const target = new URL("products_wasm.js", folder);

const tool = await wabt();
const module = tool.parseWat("products.wat", readFileSync(source, "utf8"), { simd: true });
module.validate();
const { buffer } = module.toBinary({});
const lines = Buffer.from(buffer).toString("base64").match(/.{1,92}/g) ?? [];
const text = `// Written by \`npm run wasm\` from tools/products.wat. Do not edit.

export const PRODUCTS = [
${lines.map((line) => `  "${line}",\n`).join("")}].join("");
`;
if (!process.argv.includes("--check")) writeFileSync(target, text);
else if (readFileSync(target, "utf8") !== text) {
  process.stderr.write("products_wasm.js is not what products.wat gives: npm run wasm\n");
  process.exit(1);
}
