// What a person asked for that cannot be done: message and hint, as the server tells them.

export class InputError extends Error {
  /** @param {string} message @param {{hint?: string, status?: number}} [more] */
  constructor(message, { hint = "", status = 400 } = {}) {
    super(message);
    this.name = "InputError";
    this.hint = hint;
    this.status = status;
  }
}
