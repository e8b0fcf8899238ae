// The reference server of the protocol, for tests of the client.
//
//   node serve.mjs PORT [--data-dir DIR] [--long-poll-ms MS] [--sse-ms MS]
//
// The server ends SSE connections only when it stops. With --sse-ms it ends them at this interval
// too. One JSON line on standard output has the address.

import { parseArgs } from "node:util"

import { DurableStreamTestServer } from "@durable-streams/server"

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "data-dir": { type: "string" },
    "long-poll-ms": { type: "string", default: "30000" },
    "sse-ms": { type: "string" },
  },
})
const server = new DurableStreamTestServer({
  host: "127.0.0.1",
  port: Number(positionals[0]),
  longPollTimeout: Number(values["long-poll-ms"]),
  ...(values["data-dir"] ? { dataDir: values["data-dir"] } : {}),
})
const url = await server.start()
process.stdout.write(JSON.stringify({ event: "listening", url }) + "\n")

if (values["sse-ms"]) {
  setInterval(() => {
    for (const response of server.activeSSEResponses) response.end()
  }, Number(values["sse-ms"]))
}
