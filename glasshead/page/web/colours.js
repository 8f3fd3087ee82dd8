// Written by glasshead/page/colour_files.py from glasshead/observe/colours.py.

export const COLOURS = {
  "light": {
    "paper": "#fcfbf8",
    "panel": "#ffffff",
    "sunk": "#f4f2ec",
    "raised": "#ffffff",
    "ink": "#22262e",
    "quiet": "#6b707a",
    "label": "#7a7f89",
    "line": "#e4e1d9",
    "accent": "#c0431f",
    "on-accent": "#ffffff",
    "tint": "#fbeee8",
    "data": "#1f4f88",
    "good": "#23734a",
    "bad": "#b3261e"
  },
  "dark": {
    "paper": "#15171b",
    "panel": "#1b1e23",
    "sunk": "#101216",
    "raised": "#2c3139",
    "ink": "#e4e6ea",
    "quiet": "#9299a4",
    "label": "#8e949f",
    "line": "#2f343c",
    "accent": "#ff9066",
    "on-accent": "#2a120a",
    "tint": "#33221c",
    "data": "#93c0ec",
    "good": "#7fd1a2",
    "bad": "#ff9a90"
  }
};
export const SEQUENTIAL = {
  "light": [
    "#f4f2ec",
    "#cfdcea",
    "#8fb1d3",
    "#4a7fb5",
    "#1f4f88",
    "#0e2a54"
  ],
  "dark": [
    "#1d2026",
    "#21364f",
    "#2b5a8c",
    "#4f8cc9",
    "#93c0ec",
    "#e6f3ff"
  ]
};
export const DIVERGING = {
  "light": [
    "#dbbd94",
    "#ecdcc4",
    "#f4f2ec",
    "#8fb1d3",
    "#0e2a54"
  ],
  "dark": [
    "#54432f",
    "#3a3128",
    "#1d2026",
    "#2b6aa8",
    "#e6f3ff"
  ]
};
export const SERIES = {
  "light": [
    "#2f6fb3",
    "#2a8a7a",
    "#b07a1e",
    "#8a4f9e",
    "#bd4f74",
    "#5d8a3a",
    "#5b6675",
    "#8a5a3c"
  ],
  "dark": [
    "#6fa8e0",
    "#5fc2b0",
    "#dcb05c",
    "#c08fd4",
    "#e88fb0",
    "#9cc678",
    "#a3adbb",
    "#c99a7c"
  ]
};
