// Start the reference server of the protocol for a measurement.
//
//   node serve.mjs [DATA_DIR]
//
// With DATA_DIR the server keeps its streams in files there; without it, in
// memory. One JSON line on standard output has the address. SIGTERM ends it.

import { DurableStreamTestServer } from "@durable-streams/server"

const dataDir = process.argv[2]
const options = { host: "127.0.0.1", port: 0 }
if (dataDir) options.dataDir = dataDir

const server = new DurableStreamTestServer(options)
const url = await server.start()
process.stdout.write(JSON.stringify({ event: "listening", url }) + "\n")

process.on("SIGTERM", () => process.exit(0))
