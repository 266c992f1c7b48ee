// What views are made of: Preact with htm, in one file that needs no bundler.
export * from "./vendor/htm/preact/standalone.module.js";
