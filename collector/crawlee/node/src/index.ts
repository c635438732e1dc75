/** Crawlee's crawlers on Waggle. The README of the package has examples. */

export type { WaggleConfig } from "./config.js";
export { WaggleRequestManager } from "./manager.js";
