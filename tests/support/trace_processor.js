// Runs Perfetto's trace processor on a trace: node trace_processor.js FOLDER TRACE STATEMENT...
//
// FOLDER has engine_bundle.js and the WebAssembly files of Perfetto's user interface. The bundle is made for a worker of
// a browser, so the few globals that it needs are defined here. It answers the messages of Perfetto's
// trace_processor.proto. The result of each SQL statement is printed as a list of rows in JSON; integers are strings.

"use strict";
const fs = require("node:fs");
const path = require("node:path");

const [folder, trace, ...statements] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorMethod
const PART_BYTES = 16 << 20;

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/" };
globalThis.XMLHttpRequest = class {
  open(method, url) { this.response = fs.readFileSync(path.join(folder, path.basename(url))); }
  send() {}
};
process.type = "renderer"; // Emscripten then takes this process for a browser
console.debug = console.info = console.log = console.warn = () => {};

let answered;
const replies = [];
const port = { postMessage: (bytes) => { replies.push(bytes); answered(); } };

function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

function field(number, content) {
  return typeof content === "number"
    ? Buffer.concat([varint(number << 3), varint(content)])
    : Buffer.concat([varint((number << 3) | 2), varint(content.length), content]);
}

// Yields [number, content] for each field of a message. The content is a BigInt, or the bytes of the field.
function* fields(bytes) {
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = Number(next());
    if ((key & 7) === 0) yield [key >> 3, next()];
    else if ((key & 7) === 1) yield [key >> 3, bytes.subarray(at, at += 8)];
    else if ((key & 7) === 2) { const size = Number(next()); yield [key >> 3, bytes.subarray(at, at += size)]; }
    else throw new Error(`wire type ${key & 7}`);
  }
}

// Returns packed integers as BigInts.
function integersOf(bytes) {
  const values = [];
  for (let value = 0n, shift = 0n, at = 0; at < bytes.length; at++) {
    value |= BigInt(bytes[at] & 127) << shift;
    shift += 7n;
    if (bytes[at] < 128) { values.push(BigInt.asIntN(64, value)); value = shift = 0n; }
  }
  return values;
}

let sequence = 0;
async function request(method, content) {
  const message = Buffer.concat([field(1, sequence++), field(2, method), content]);
  replies.length = 0;
  const wait = new Promise((resolve) => { answered = resolve; });
  port.onmessage({ data: new Uint8Array(field(1, message)) });
  await wait;
}

function* results(number) {
  for (const reply of replies)
    for (const [, message] of fields(reply))
      for (const [key, content] of fields(message)) if (key === number) yield content;
}

const text = (bytes) => Buffer.from(bytes).toString("utf8");

async function query(sql) {
  await request(QUERY, field(103, field(1, Buffer.from(sql))));
  let columns = 0;
  const cells = [];
  for (const result of results(203)) {
    for (const [key, content] of fields(result)) {
      if (key === 1) columns++;
      if (key === 2 && content.length) throw new Error(text(content));
      if (key !== 3) continue;
      let kinds = [], integers = [], floats = [], strings = [];
      for (const [part, bytes] of fields(content)) {
        if (part === 1) kinds.push(...bytes);
        if (part === 2) integers.push(...integersOf(bytes));
        if (part === 3) for (let at = 0; at < bytes.length; at += 8) floats.push(Buffer.from(bytes).readDoubleLE(at));
        if (part === 5) strings.push(...text(bytes).split("\0"));
      }
      for (const kind of kinds) {
        if (kind === 2) cells.push(String(integers.shift()));
        else if (kind === 3) cells.push(floats.shift());
        else if (kind === 4) cells.push(strings.shift());
        else cells.push(null);
      }
    }
  }
  const rows = [];
  for (let at = 0; at < cells.length; at += columns) rows.push(cells.slice(at, at + columns));
  return rows;
}

async function main() {
  (0, eval)(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
  self.onmessage({ data: port });
  await new Promise(setImmediate); // the bundle finishes its start in promises
  const bytes = fs.readFileSync(trace);
  for (let at = 0; at < bytes.length; at += PART_BYTES)
    await request(APPEND, field(101, bytes.subarray(at, at + PART_BYTES)));
  await request(FINALIZE, Buffer.alloc(0));
  const answers = [];
  for (const sql of statements) answers.push(await query(sql));
  process.stdout.write(JSON.stringify(answers));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
