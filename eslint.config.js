// The page's code is read by this and by tsc (tsconfig.json); nothing here is shipped.

import js from "@eslint/js";
import stylistic from "@stylistic/eslint-plugin";
import { globalIgnores } from "eslint/config";
import globals from "globals";

export default [
  globalIgnores(["build/", "runs/", ".venv*/", "glasshead/page/web/vendor/"]),
  js.configs.recommended,
  {
    plugins: { stylistic },
    languageOptions: { globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-unused-vars": ["error", { args: "after-used", ignoreRestSiblings: true }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "stylistic/max-len": ["error", { code: 100, tabWidth: 2 }],
    },
  },
  { files: ["docs/assets/*.js"], languageOptions: { sourceType: "script" } },
];
