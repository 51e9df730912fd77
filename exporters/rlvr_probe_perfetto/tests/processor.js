// Runs Perfetto's trace processor, as its UI runs it in a worker, outside of a browser.
// Argument: the script of that worker. Standard input and output carry messages of its protocol,
// each after its length (4 bytes, little-endian); an empty one says that it is ready.
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const bundle = process.argv[2];
const log = (...words) => process.stderr.write(words.join(" ").slice(0, 2000) + "\n");

function send(message) {
  const framed = Buffer.concat([Buffer.alloc(4), message]);
  framed.writeUInt32LE(message.length);
  for (let at = 0; at < framed.length; ) at += fs.writeSync(1, framed, at);
}

function take(length) {
  const found = Buffer.alloc(length);
  for (let at = 0; at < length; ) {
    const got = fs.readSync(0, found, at, length - at);
    if (!got) process.exit(0);
    at += got;
  }
  return found;
}

// The module is read as a worker of a browser does it: at once, from beside its script.
class XMLHttpRequest {
  open(method, address) {
    this.address = address;
  }
  send() {
    this.response = Bytes.from(fs.readFileSync(path.join(path.dirname(bundle), path.basename(this.address))));
  }
}

// A global object of its own, in which nothing tells that this is no browser.
const worker = vm.createContext({
  console: { log, warn: log, error: log },
  location: { href: "http://localhost/" },
  WorkerGlobalScope: class {},
  XMLHttpRequest,
  URL, TextDecoder, TextEncoder, performance, crypto, setTimeout, clearTimeout,
});
worker.self = worker;
const Bytes = vm.runInContext("Uint8Array", worker);
vm.runInContext(fs.readFileSync(bundle, "utf8"), worker);
const port = { postMessage: (reply) => send(Buffer.from(reply)) };
worker.onmessage({ data: port });

// It prepares itself in promises; those are kept before this is.
setTimeout(() => {
  send(Buffer.alloc(0));
  for (;;) port.onmessage({ data: Bytes.from(take(take(4).readUInt32LE())) });
}, 0);
